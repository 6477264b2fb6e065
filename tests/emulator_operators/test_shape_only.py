# SPDX-License-Identifier: Apache-2.0
"""Dry runs: nothing is computed, and memory is what it would be."""

import resource

import llama
import pytest
import shape_cases
import torch

DRY = dict(shape_only="1", memory="141GiB")


@pytest.mark.parametrize("case", shape_cases.CASES, ids=lambda case: case.__name__)
def test_a_dry_run_allocates_and_frees_exactly_as_a_real_one(elsewhere, tmp_path, case):
    real, dry = (
        elsewhere(shape_cases.allocations, case.__name__, str(tmp_path / name), clock="virtual", **settings)
        for name, settings in (("real", {}), ("dry", {"shape_only": "1"}))
    )
    assert len(real) > 500
    assert dry == real


def full_size(layers, batch, length):
    model = llama.made(layers)
    states = 3 * sum(llama.rounded(each.nbytes) for each in model.parameters())
    found = llama.train(model, batch, length, steps=2)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        **found,
        "states": states,
        "parameters": sum(each.nbytes for each in model.parameters()),
        "held": held,
    }


@pytest.mark.parametrize(("layers", "batch", "length"), [(8, 4, 4096), (4, 2, 2048)])
def test_a_full_size_model_needs_what_its_formula_states_and_no_memory_here(elsewhere, layers, batch, length):
    found = elsewhere(full_size, layers, batch, length, **DRY)
    assert found["saved"] == llama.saved_bytes(batch, length, layers)
    assert found["gradients"] == found["parameters"]
    assert found["before"] > found["states"]
    assert found["peak"] > found["before"] + found["saved"]
    assert found["held"] < 1.5 * 2**30


def offloaded():
    import spillway

    spillway.use_allocator()
    model = llama.made(4, vocabulary=1024)
    tokens = torch.randint(0, 1024, (2, 4096), device="cuda")
    for _ in range(2):
        with spillway.CPUOffload(1.0):
            loss = model(tokens).sum()
        loss.backward()
    moved = spillway.stats()["devices"][0]["residency"]["stashed_bytes"]
    return {"moved": moved, "held": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def test_what_waits_on_the_host_takes_no_memory_here(elsewhere):
    found = elsewhere(offloaded, **DRY)
    assert found["moved"] > 4 * 2**30
    assert found["held"] < 1.5 * 2**30


def values():
    large = torch.randn(1 << 20, device="cuda")
    small = torch.arange(8, device="cuda").float()
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
    weight = torch.ones(1 << 20, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler.scale((weight * large).mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    return {
        "small": small.sum().item(),
        "mean": large.mean().item(),
        "finite": bool(torch.isfinite(large).all()),
        "nan": bool(torch.isnan(large).any()),
        "equal": torch.equal(large, large * 2),
        "selected": large[large > 0].numel(),
        "places": list(torch.nonzero(large.view(1024, 1024)).shape),
        "scale": scaler.get_scale(),
    }


def test_what_the_program_reads_is_true_where_it_is_small_and_documented_where_it_is_not(elsewhere):
    assert elsewhere(values, **DRY) == {
        "small": 28.0,
        "mean": 1.0,
        "finite": True,
        "nan": False,
        "equal": True,
        "selected": 1 << 20,
        "places": [1 << 20, 2],
        "scale": 8.0,
    }


def without_a_shape():
    large = torch.ones(1 << 20, device="cuda")
    try:
        torch.unique(large)
    except NotImplementedError as error:
        return str(error)
    return torch.unique(large[:16]).numel()


def test_what_has_no_shape_without_values_stops_with_its_name(elsewhere):
    said = elsewhere(without_a_shape, **DRY)
    assert said.startswith("aten::_unique2: ")
    assert "4.0 MiB" in said or "4 MiB" in said
    assert "--assume unique=SHARE" in said


def sizes_that_data_decide():
    large = torch.ones(1000, 1000, device="cuda")
    values, places, counts = torch.unique(large, return_inverse=True, return_counts=True)
    rows, of_rows = torch.unique(large, dim=0, return_inverse=True)
    return {
        "places": list(torch.nonzero(large).shape),
        "selected": large[large > 0].numel(),
        "under a mask": torch.masked_select(large, large > 0).numel(),
        "unique": [list(each.shape) for each in (values, places, counts, rows, of_rows)],
        "consecutive": torch.unique_consecutive(large).numel(),
        "rows in turn": list(torch.unique_consecutive(large, dim=1).shape),
        "mean": large.mean().item(),
    }


def test_what_is_assumed_decides(elsewhere):
    found = elsewhere(sizes_that_data_decide, assume="nonzero=0.25,unique=0.001,value=-3", **DRY)
    assert found == {
        "places": [250_000, 2],
        "selected": 250_000,
        "under a mask": 250_000,
        "unique": [[1000], [1000, 1000], [1000], [1, 1000], [1000]],
        "consecutive": 1000,
        "rows in turn": [1000, 1],
        "mean": -3.0,
    }


def wrong_shapes():
    try:
        torch.ones(1000, 2000, device="cuda") @ torch.ones(1000, 2000, device="cuda")
    except RuntimeError as error:
        return str(error)


def test_shapes_that_do_not_fit_are_the_error_they_would_be(elsewhere):
    assert "[1000, 2000] X [1000, 2000]" in elsewhere(wrong_shapes, **DRY)


def too_large():
    try:
        torch.empty(200 << 30, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        return "out of memory"


def test_memory_ends_where_the_gpus_does(elsewhere):
    assert elsewhere(too_large, **DRY) == "out of memory"


def replayed():
    a = torch.empty(8192, 8192, dtype=torch.bfloat16, device="cuda")
    a @ a
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        b = a @ a
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    graph.replay()
    graph.replay()
    end.record()
    end.synchronize()
    return [start.elapsed_time(end), list(b.shape)]


def test_a_captured_operator_takes_its_time_at_each_replay(elsewhere):
    once = 1e3 * 2 * 8192**3 / 1e15
    took, shape = elsewhere(replayed, rates="half=1e15", **DRY)
    assert 2 * once <= took <= 2 * once + 0.1
    assert shape == [8192, 8192]


def copies():
    host = torch.full((64 << 20,), 7, dtype=torch.uint8, pin_memory=True)
    device = host.to("cuda", non_blocking=True)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    device.copy_(host, non_blocking=True)
    end.record()
    end.synchronize()
    little = torch.arange(100).to("cuda").cpu()
    return {"ms": start.elapsed_time(end), "sum": little.sum().item()}


def test_copies_take_their_time_and_little_ones_their_bytes(elsewhere):
    found = elsewhere(copies, link_h2d="10GiB", latency="10us", **DRY)
    assert 6.26 <= found["ms"] <= 6.26 * 1.02
    assert found["sum"] == 4950
