# SPDX-License-Identifier: Apache-2.0
"""What operators cost on the virtual clock follows from bytes and FLOPs, the same in every run."""

import torch


def milliseconds(call):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def measure():
    a, b = (torch.ones(n, n, device="cuda") for n in (1024, 2048))
    x, w = torch.ones(2, 64, 16, 16, device="cuda"), torch.ones(64, 64, 3, 3, device="cuda")
    big, twice = torch.ones(1 << 22, device="cuda"), torch.ones(1 << 23, device="cuda")
    q = torch.ones(1, 8, 1024, 64, device="cuda")
    attend = torch.nn.functional.scaled_dot_product_attention
    rows, more_rows = (torch.ones(n, 4, device="cuda").to_sparse() for n in (1 << 16, 1 << 17))
    pinned = torch.empty(1 << 24, pin_memory=True)
    return {
        "mm 1024": milliseconds(lambda: a @ a),
        "mm 2048": milliseconds(lambda: b @ b),
        "in-place product": milliseconds(lambda: a.addmm_(a, a)),
        "as many bytes": milliseconds(lambda: a.addcmul_(a, a)),
        "sparse": milliseconds(lambda: rows * 2),
        "sparse twice as many": milliseconds(lambda: more_rows * 2),
        "add": milliseconds(lambda: big.add_(1)),
        "add twice as many": milliseconds(lambda: twice.add_(1)),
        "convolution": milliseconds(lambda: torch.conv2d(x, w, padding=1)),
        "attention": milliseconds(lambda: attend(q, q, q)),
        "causal attention": milliseconds(lambda: attend(q, q, q, is_causal=True)),
        "copy": milliseconds(lambda: big.copy_(pinned[: 1 << 22], non_blocking=True)),
    }


def test_the_clock_follows_the_work(elsewhere):
    seen = elsewhere(measure, clock="virtual", link_h2d="1GiB")
    assert seen["mm 2048"] > 2 * seen["mm 1024"] > 0
    assert seen["in-place product"] > seen["as many bytes"] > 0
    assert 0 < seen["sparse"] < seen["sparse twice as many"]
    assert seen["add"] < seen["add twice as many"] <= 2 * seen["add"]
    assert 0 < seen["causal attention"] < seen["attention"]
    assert seen["convolution"] > 0
    assert abs(seen["copy"] - 1000 / 64) <= 0.02 * 1000 / 64  # 16 MiB of 1 GiB a second


MIB = 1 << 20
WHOLE = 256 * MIB  # bytes of a tensor
LAUNCH = 0.02  # milliseconds, at the most


def of_memory():
    """Milliseconds by what is done to 256 MiB, of which each takes ten microseconds."""
    x = torch.empty(WHOLE // 4, device="cuda")
    rows = x.view(-1, MIB // 4)
    picked, long_row = torch.arange(16, device="cuda"), torch.empty(MIB // 4, device="cuda")
    some = torch.empty(16, MIB // 4, device="cuda")
    where = picked[:, None].expand(16, MIB // 4)
    words = torch.nn.Embedding.from_pretrained(rows)
    return {
        "fill_": milliseconds(lambda: x.fill_(1)),
        "zeros": milliseconds(lambda: torch.zeros_like(x)),
        "normal_": milliseconds(lambda: x.normal_()),
        "mul_": milliseconds(lambda: x.mul_(2)),
        "x + x": milliseconds(lambda: x + x),
        "with a row": milliseconds(lambda: rows.add_(long_row)),
        "expanded": milliseconds(lambda: rows.add_(long_row.expand(256, -1))),
        "index": milliseconds(lambda: rows[picked]),
        "index_select": milliseconds(lambda: rows.index_select(0, picked)),
        "embedding": milliseconds(lambda: words(picked)),
        "index_put_": milliseconds(lambda: rows.index_put_((picked,), some)),
        "index_add_": milliseconds(lambda: rows.index_add_(0, picked, some)),
        "index_copy_": milliseconds(lambda: rows.index_copy_(0, picked, some)),
        "gather": milliseconds(lambda: rows.gather(0, where)),
    }


def test_memory_is_paid_for_where_it_is_touched(elsewhere):
    found = elsewhere(of_memory, shape_only="1", rates=f"memory={10**5 * MIB}")
    whole = WHOLE / MIB  # read or written once
    row, rows = 1, 16
    expected = {
        "fill_": whole, "zeros": whole, "normal_": whole, "mul_": 2 * whole, "x + x": 2 * whole,
        "with a row": 2 * whole + row, "expanded": 2 * whole + row,
        "index": 2 * rows, "index_select": 2 * rows, "embedding": 2 * rows,
        "index_put_": 3 * rows, "index_add_": 3 * rows, "index_copy_": 3 * rows,
        "gather": 2 * rows,
    }  # fmt: skip
    assert found.keys() == expected.keys()
    for name, mebibytes in expected.items():
        assert 0 <= found[name] - mebibytes / 100 <= LAUNCH, (name, found[name])


def products():
    n = 4096
    made = {
        name: torch.empty(n, n, device="cuda", dtype=getattr(torch, name))
        for name in ("bfloat16", "float32", "float64")
    }
    took = {name: milliseconds(lambda a=a: a @ a) for name, a in made.items()}
    torch.backends.cuda.matmul.allow_tf32 = True
    took["tf32"] = milliseconds(lambda: made["float32"] @ made["float32"])
    leaf = torch.empty(4, 16, 2048, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q = leaf * 1
    attend = torch.nn.functional.scaled_dot_product_attention
    took["attention"] = milliseconds(lambda: attend(q, q, q))
    out = attend(q, q, q)
    took["attention_backward"] = milliseconds(lambda: out.sum().backward())
    took["memory"] = milliseconds(lambda: made["float64"].add_(1))
    return took


def test_each_type_and_kind_of_kernel_has_its_own_rate(elsewhere):
    rates = (
        "memory=2e12,half=800e12,tf32=400e12,single=50e12,double=25e12,"
        "product=0.5,attention=0.4,attention_backward=0.25"
    )
    took = elsewhere(products, shape_only="1", rates=rates)
    flops, scores = 2 * 4096**3, 4 * 4 * 16 * 2048**2 * 64
    expected = {
        "bfloat16": flops / (800e12 * 0.5),
        "tf32": flops / (400e12 * 0.5),
        "float32": flops / (50e12 * 0.5),
        "float64": flops / (25e12 * 0.5),
        "attention": scores / (800e12 * 0.4),
        "memory": 2 * 4096**2 * 8 / 2e12,
    }
    for name, seconds in expected.items():  # 2 us for the kernel, and the calls between the events
        assert 1e3 * seconds + 2e-3 <= took[name] <= 1e3 * seconds + 20e-3, name
    assert took["attention_backward"] >= 1e3 * 2.5 * scores / (800e12 * 0.25)


N, IMAGES, CHANNELS, FILTERS, SIDE = 4096, 64, 128, 256, 64
ATTENTION = (4, 16, 2048, 64)


def arithmetic():
    """Milliseconds of operators that are limited by their arithmetic."""

    def made(*sizes, **options):
        return torch.empty(*sizes, device="cuda", dtype=torch.bfloat16, **options)

    a, bias, batch = made(N, N), made(N), made(4, N, N)
    x, w = (
        made(IMAGES, CHANNELS, SIDE, SIDE, requires_grad=True),
        made(FILTERS, CHANNELS, 3, 3, requires_grad=True),
    )
    q = made(*ATTENTION, requires_grad=True)
    small = torch.empty(N, N, device="cuda", dtype=torch.float8_e4m3fn)
    whole = torch.empty(N, N, device="cuda", dtype=torch.int8)
    scale = torch.ones((), device="cuda")
    efficient = [torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION]
    attend = torch.nn.functional.scaled_dot_product_attention
    convolved = torch.conv2d(x, w, padding=1)
    with torch.nn.attention.sdpa_kernel(efficient):
        attended = attend(q, q, q)
        forward = milliseconds(lambda: attend(q, q, q))
    grad, grad_of_attended = torch.empty_like(convolved), torch.empty_like(attended)
    return {
        "mm": milliseconds(lambda: a @ a),
        "addmm": milliseconds(lambda: torch.addmm(bias, a, a)),
        "_addmm_activation": milliseconds(lambda: torch._addmm_activation(bias, a, a)),
        "bmm": milliseconds(lambda: batch @ batch),
        "baddbmm": milliseconds(lambda: torch.baddbmm(batch, batch, batch)),
        "_scaled_mm": milliseconds(lambda: torch._scaled_mm(small, small.t(), scale, scale)),
        "_int_mm": milliseconds(lambda: torch._int_mm(whole, whole)),
        "convolution": milliseconds(lambda: torch.conv2d(x, w, padding=1)),
        "convolution backward": milliseconds(lambda: torch.autograd.grad(convolved, (x, w), grad)),
        "attention": forward,
        "attention backward": milliseconds(lambda: torch.autograd.grad(attended, q, grad_of_attended)),
    }


def test_operators_cost_the_arithmetic_that_they_do(elsewhere):
    rates = "memory=1e18,half=100e12,fp8=200e12,int8=400e12,product=0.5,attention=0.4,attention_backward=0.25"
    took = elsewhere(arithmetic, shape_only="1", rates=rates)
    product, batch = 2 * N**3, 4 * 2 * N**3
    filters = 2 * IMAGES * FILTERS * SIDE**2 * CHANNELS * 3 * 3
    scores = 4 * ATTENTION[0] * ATTENTION[1] * ATTENTION[2] ** 2 * ATTENTION[3]
    seconds = {
        "mm": product / 50e12, "addmm": product / 50e12, "_addmm_activation": product / 50e12,
        "bmm": batch / 50e12, "baddbmm": batch / 50e12,
        "_scaled_mm": product / 100e12, "_int_mm": product / 200e12,
        "convolution": filters / 50e12, "convolution backward": 2 * filters / 50e12,
        "attention": scores / 40e12, "attention backward": 2.5 * scores / 25e12,
    }  # fmt: skip
    assert took.keys() == seconds.keys()
    for name, expected in seconds.items():
        assert 1e3 * expected <= took[name] <= 1e3 * expected + 0.05, name


def beside_the_work():
    """Milliseconds of what is too small to take any time itself."""
    small = torch.ones(1, device="cuda")
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    begin, behind, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(10):
        small.add_(1)
    end.record()
    end.synchronize()
    took = {"operators": begin.elapsed_time(end)}
    for name, waits in (("wait", other), ("no wait", one)):
        with torch.cuda.stream(one):
            small.add_(1)
            begin.record()
        waits.wait_event(begin)
        behind.record(waits)
        behind.synchronize()
        took[name] = begin.elapsed_time(behind)
    return took


def test_kernels_operators_and_waits_cost_time_of_their_own(elsewhere):
    nothing = {"kernel": "1e-9", "launch": "1e-9", "call": "1e-9", "hop": "1e-9"}

    def with_(**rate):
        rates = ",".join(f"{name}={value}" for name, value in (nothing | rate).items())
        return elsewhere(beside_the_work, shape_only="1", rates=rates)

    assert max(with_().values()) < 1e-3

    # The host issues ahead of kernels, and they wait for a host that is slow.
    assert 10 <= with_(kernel="1e-3")["operators"] < 10.1
    assert 10 <= with_(launch="1e-3")["operators"] < 11.1
    hopped = with_(hop="1e-3")
    assert 1 <= hopped["wait"] < 1.01
    assert hopped["no wait"] < 0.01
    assert with_(call="1e-3")["wait"] >= 1


def copied():
    there = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    pageable, pinned = (torch.empty(MIB, dtype=torch.uint8, pin_memory=pin) for pin in (False, True))
    return [
        milliseconds(lambda to=to, source=source: to.copy_(source))
        for here in (pageable, pinned)
        for to, source in ((there, here), (here, there))
    ]


def test_copies_with_pageable_memory_have_a_rate_of_their_own(elsewhere):
    link = dict(link_h2d="1GiB", link_d2h="2GiB", latency="1us", rates=f"pageable={MIB * 128}")
    found = elsewhere(copied, shape_only="1", **link)
    expected = [1000 / 128, 1000 / 128, 1000 / 1024, 1000 / 2048]
    for took, bytes_over_rate in zip(found, expected, strict=True):
        assert bytes_over_rate <= took <= bytes_over_rate + LAUNCH, found


def test_two_runs_take_the_same_time(elsewhere):
    assert elsewhere(measure, clock="virtual") == elsewhere(measure, clock="virtual")


def capture():
    a = torch.ones(512, 512, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a @ a
    milliseconds(lambda: a @ a)  # allocates what stays
    return [milliseconds(lambda: a @ a), milliseconds(graph.replay)]


def test_a_replay_costs_what_its_operators_cost(elsewhere):
    direct, replayed = elsewhere(capture, clock="virtual")
    assert replayed >= 0.5 * direct > 0
