# SPDX-License-Identifier: Apache-2.0
"""Models in parts whose parameters live in a file."""

import contextlib
import copy
import gc
import os
import pathlib
import resource
import tempfile

import spillway
import torch
from torch import nn

from cases import CASES, case
from cases.measure import same
from cases.parts import batch, layers, train


@contextlib.contextmanager
def directory():
    """An empty one, in which nothing may be left."""
    with tempfile.TemporaryDirectory() as name:
        yield name
        assert os.listdir(name) == []


def mapped(name):
    """Ranges of addresses that files of the directory are mapped at, and nothing can open."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in lines if f" {name}/" in line and "(deleted)" in line]
    return [range(int(a, 16), int(b, 16)) for a, b in ranges]


def lies_in(tensors, ranges):
    return all(any(tensor.data_ptr() in one for one in ranges) for tensor in tensors)


def pinned():
    """Pinned bytes in use, and the most since the first region of the step."""
    device = spillway.stats()["devices"].get(0)
    return (device["host"]["in_slots_bytes"], device["host"]["in_slots_peak_bytes"]) if device else (0, 0)


#: Of the modules with cases of models in parts.
MODULES = ("parts", "parts_gradients", "parts_inside", "parts_order", "parts_waits")


@case
def what_holds_for_parts_in_memory_holds_for_parts_on_disk():
    claims = [
        function
        for name, function in CASES.items()
        if function.__module__ in [f"cases.{name}" for name in MODULES]
        and "split" not in name
        and "refused_by_name" not in name
    ]
    assert len(claims) > 40
    in_memory, loaded = spillway.OffloadModel, []

    with directory() as name:

        class OnDisk(in_memory):
            def __init__(self, model, device, offload_device=name, *arguments, **options):
                super().__init__(model, device, offload_device, *arguments, **options)

            def forward(self, *inputs, **named):
                try:
                    return super().forward(*inputs, **named)
                finally:
                    loaded.append(self.stats()["loaded_bytes"])

        spillway.OffloadModel = OnDisk
        try:
            for claim in claims:
                loaded.clear()
                try:
                    claim()
                except BaseException as error:
                    error.add_note(f"on disk: {claim.__name__}")
                    raise
                assert not loaded or max(loaded) > 0, claim.__name__
        finally:
            spillway.OffloadModel = in_memory


@case
def parameters_buffers_and_gradients_lie_in_a_file_without_a_name():
    with directory() as name:
        model = layers(norm=True)
        net = spillway.OffloadModel(model, "cuda", pathlib.Path(name))
        ranges = mapped(name)
        assert len(ranges) == 1 and os.listdir(name) == []
        for _ in range(2):
            net(batch()).square().sum().backward()
            assert lies_in([*net.parameters(), *net.buffers(), *(p.grad for p in net.parameters())], ranges)
            net.zero_grad()
        del net
        gc.collect()
        assert lies_in(model.parameters(), ranges)  # they are the model's own
        del model
        gc.collect()
        assert mapped(name) == []


@case
def a_gradient_that_others_keep_is_not_written_over():
    with directory() as name:
        plain, net = layers().cuda(), spillway.OffloadModel(layers(), "cuda", name)
        kept = []
        for one in (plain, net):
            one(batch(1)).square().sum().backward()
            kept.append([p.grad for p in one.parameters()])
            one.zero_grad()
            one(batch(2)).square().sum().backward()
        assert same(kept[1], kept[0])
        assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def pinned_memory_does_not_grow_with_the_number_of_parts():
    most = {}
    with directory() as name:
        for count in (3, 48):
            gc.collect()
            torch.cuda.synchronize()
            spillway.step()
            for _ in range(257):  # the peak is that of the last 256 steps
                with spillway.CPUOffload(1.0, tag=f"a new peak {count}"):
                    y = torch.ones(4096, device="cuda", requires_grad=True).exp()
                y.sum().backward()
                del y
                spillway.step()
            before, _ = pinned()
            model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(count)))
            net = spillway.OffloadModel(model, "cuda", name, num_slices=count)
            for _ in range(2):
                net(torch.ones(2, 512, device="cuda")).sum().backward()
            assert net.stats()["gradient_bytes"] == 2 * sum(p.nbytes for p in net.parameters())
            most[count], part = pinned()[1] - before, net.stats()["slot_bytes"] // 2
            del net, model
    assert 4 * part <= most[3] and most[48] <= 6 * part, (most, part)


@case
def parts_larger_than_what_is_read_at_a_time_come_whole():
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(1500, 1500) for _ in range(3)))  # 9 MiB each
    plain, x = copy.deepcopy(model).cuda(), torch.randn(4, 1500, device="cuda")
    with directory() as name:
        net = spillway.OffloadModel(model, "cuda", name, num_slices=3)
        before = pinned()[0]
        for _ in range(2):
            for one in (plain, net):
                one(x).square().sum().backward()
        assert net.stats()["loaded_bytes"] >= 6 * 1500 * 1500 * 4
        assert pinned()[0] == before
        assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def a_checkpoint_of_a_model_on_disk_is_the_plain_models():
    with directory() as name:
        net, plain = spillway.OffloadModel(layers(norm=True), "cuda", name), layers(norm=True).cuda()
        for one in (net, plain):
            one(batch())
        state = {key.removeprefix("model."): value for key, value in net.state_dict().items()}
        assert same(state.values(), plain.state_dict().values())
        other = spillway.OffloadModel(layers(seed=5, norm=True), "cuda", name)
        other.load_state_dict(net.state_dict())
        assert same([other(batch())], [plain(batch())])


@case
def a_place_of_no_use_is_refused_and_the_model_stays_as_it_was():
    model = layers()
    before = [p.data_ptr() for p in model.parameters()]
    with directory() as name:
        file = pathlib.Path(name, "file")
        file.touch()
        missing = f"{name}/missing"
        for place, error in (
            (missing, ValueError),
            (file, ValueError),
            ("cuda", ValueError),
            (torch.device("meta"), ValueError),
            (3, TypeError),
        ):
            try:
                spillway.OffloadModel(model, "cuda", place)
                raise AssertionError(f"{place}: it was to raise")
            except error as raised:
                assert str(raised) == f"offload_device must be the CPU or a directory, not {place!r}", raised
        file.unlink()

        too_large = nn.Sequential(nn.Linear(1, 1, bias=False))
        too_large[0].weight = nn.Parameter(torch.zeros(1).expand(1 << 25, 1 << 25))
        try:
            spillway.OffloadModel(too_large, "cuda", name, num_slices=1)
            raise AssertionError("it was to raise")
        except ValueError as raised:
            assert f"offload_device='{name}': the model needs" in str(raised), raised
            assert "there, but" in str(raised) and "are free" in str(raised), raised

        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            spillway.OffloadModel(model, "cuda", name)
            raise AssertionError("it was to raise")
        except ValueError as raised:
            assert f"offload_device='{name}'" in str(raised) and "File too large" in str(raised), raised
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert mapped(name) == []
    assert [p.data_ptr() for p in model.parameters()] == before
    assert same(train(spillway.OffloadModel(model, "cuda")), train(layers().cuda()))
