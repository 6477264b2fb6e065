# SPDX-License-Identifier: Apache-2.0
"""Triton kernels: in triton's interpreter on the emulated GPU, and without arithmetic in dry runs."""

import ctypes

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton_kernels as kernels

DRY = dict(SPILLWAY_EMULATE_SHAPE_ONLY="1", SPILLWAY_EMULATE_MEMORY="80GiB")


def random(*size, seed=0, kind=torch.float32):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(kind).cuda()


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.half, torch.bfloat16])
def test_a_kernel_gives_what_pytorch_gives(kind):
    x, y = random(1000, kind=kind), random(1000, seed=1, kind=kind)
    assert torch.equal(kernels.add(x, y), x + y)
    assert torch.equal(kernels.add(x[500:], y[:500]), x[500:] + y[:500])


@pytest.mark.parametrize("n", [1024, 1000])
def test_heuristics_and_an_autotuner_run_before_it(n):
    x = random(n)
    out, total = kernels.scale(x, 3.0)
    assert torch.equal(out, x * 3.0)
    torch.testing.assert_close(total[0], out.sum(), rtol=1e-5, atol=1e-4)  # and the 7 was reset
    again, _ = kernels.scale(x, 2.0)
    assert torch.equal(again, x * 2.0)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_autograd_functions_of_kernels_train(kind):
    x, weight = random(6, 100, kind=kind).requires_grad_(), random(100, seed=1)
    by_torch = x.detach().clone().requires_grad_()
    out, expected = kernels.Norm.apply(x, weight), kernels.norm_by_torch(by_torch, weight)
    torch.testing.assert_close(out, expected)
    out.backward(torch.ones_like(out))
    expected.backward(torch.ones_like(expected))
    torch.testing.assert_close(x.grad, by_torch.grad)


@pytest.mark.parametrize("kind", [torch.float32, torch.half, torch.bfloat16])
def test_products(kind):
    a, b = random(32, 64, kind=kind), random(64, 16, seed=1, kind=kind)
    torch.testing.assert_close(kernels.product(a, b), (a.float() @ b.float()).to(kind))


def test_arithmetic_of_bfloat16_rounds_as_pytorch_does():
    x, y = random(1000, kind=torch.bfloat16), random(1000, seed=1, kind=torch.bfloat16)
    out, sums = torch.empty_like(x), torch.empty(2, dtype=torch.bfloat16, device="cuda")
    kernels.narrow_kernel[(1,)](x, y, out, sums, 1000, BLOCK=1024)
    assert torch.equal(out, x * y + x - torch.maximum(x, y))
    assert sums[0] == torch.cat([x, x.new_zeros(1)]).max()
    torch.testing.assert_close(sums[1], torch.maximum(x, y).float().sum().bfloat16())


@pytest.mark.parametrize("to", [torch.half, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("of", [torch.float32, torch.bfloat16])
def test_conversions_round_as_pytorch_does(of, to):
    x = torch.cat([random(256), random(128) * 0.01, random(128) * 100]).to(of)
    x[0] = 1.9996  # rounds up to the next power of two
    assert torch.equal(kernels.convert(x, to).float(), x.to(to).float())
    assert torch.equal(kernels.convert(x.to(to), torch.float32), x.to(to).float())


def test_an_operator_of_kernels_runs_eagerly_and_compiled():
    x, y = random(1000), random(1000, seed=1)
    assert torch.equal(torch.ops.spillway_tests.add(x, y), x + y)
    compiled = torch.compile(lambda a, b: torch.ops.spillway_tests.add(a, b) * 2)
    assert torch.equal(compiled(x, y), (x + y) * 2)


def test_a_compiled_function_may_launch_kernels_itself():
    x, y = random(1000), random(1000, seed=1)
    assert torch.equal(torch.compile(lambda a, b: kernels.add(a.sin(), b))(x, y), x.sin() + y)


def test_the_driver_describes_the_device():
    active = triton.runtime.driver.active
    assert active.get_current_target().backend == "cuda"
    assert active.get_current_device() == torch.cuda.current_device()
    found = active.utils.get_device_properties(0)
    assert found["multiprocessor_count"] == torch.cuda.get_device_properties(0).multi_processor_count
    assert found["max_shared_mem"] > 0


def test_loops_over_arguments_and_numbers_that_are_converted():
    x = random(7, 40)
    factor = torch.tensor(0.1, device="cuda")  # in float32, as the argument is
    assert torch.equal(kernels.by_rows(x, 0.1, 2.0), x * factor + 2.0)


def test_what_it_cannot_run_stops_by_name():
    x = torch.zeros(16, dtype=torch.int32, device="cuda")
    with pytest.raises(NotImplementedError, match=r"triton_kernels.assembly_kernel: .*inline_asm"):
        kernels.assembly_kernel[(1,)](x, x, BLOCK=16)
    with pytest.raises(NotImplementedError, match=r"triton_kernels.add_kernel: .*warmup"):
        kernels.add_kernel.warmup(x, x, x, 16, BLOCK=16, grid=(1,))
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(NotImplementedError, match=r"triton_kernels.add_kernel: .*graphs"),
        torch.cuda.graph(graph),
    ):
        kernels.add_kernel[(1,)](x, x, x, 16, BLOCK=16)


def test_a_cpu_tensor_is_refused_as_on_a_gpu_and_page_locked_memory_is_not():
    x = torch.ones(16)
    with pytest.raises(ValueError, match="cannot be accessed from Triton"):
        kernels.add(x, x)
    locked, out = x.pin_memory(), torch.empty(16, device="cuda")
    kernels.add_kernel[(1,)](locked, locked, out, 16, BLOCK=16)
    assert torch.equal(out.cpu(), x + x)


def test_a_helper_is_no_function_of_the_host():
    with pytest.raises(RuntimeError, match="outside of the scope of a kernel"):
        kernels.plus(1, 2)


def launched_beside(ordered):
    """One stream writes what a kernel on another reads."""
    library = ctypes.CDLL(None)
    library.spillway_emulator_count.restype = ctypes.c_uint64
    x, side = random(1000), torch.cuda.Stream()
    kernels.add(x, x)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        out = kernels.add(x, x)
        kernels.add_kernel[(4,)](out, x, out, 1000, BLOCK=256)
    if ordered:
        torch.cuda.current_stream().wait_stream(side)
    out.record_stream(torch.cuda.current_stream())
    kernels.add(out, x)
    return library.spillway_emulator_count(b"unordered")


def test_the_order_checker_sees_what_a_kernel_reads_and_writes(elsewhere):
    assert elsewhere(launched_beside, True, SPILLWAY_EMULATE_CHECK="1") == 0
    assert elsewhere(launched_beside, False, SPILLWAY_EMULATE_CHECK="1") > 0


def late():
    """A kernel reads what a copy of its stream has yet to bring."""
    x = torch.arange(1000.0).pin_memory().to("cuda", non_blocking=True)
    out = kernels.add(x, x)
    return torch.equal(out.cpu(), torch.arange(1000.0) * 2)


def test_a_kernel_comes_after_what_its_stream_was_given_before(elsewhere):
    assert elsewhere(late, SPILLWAY_EMULATE_SCHEDULE="late")


# --- dry runs


def norm_of_size(rows):
    torch.cuda.reset_peak_memory_stats()
    x = torch.empty(rows, 8192, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.empty(8192, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    out = kernels.Norm.apply(x, weight)
    begin.record()
    kernels.norm_kernel[(rows,)](x, weight, out, 8192, BLOCK=8192)
    end.record()
    out.backward(out)
    kernels.scale(x.detach(), 2.0)
    end.synchronize()
    bytes_of_x = x.nbytes
    return {
        "grad": list(x.grad.shape),
        "ms": begin.elapsed_time(end),
        "peak": torch.cuda.max_memory_allocated() / bytes_of_x,
        "bytes": 2 * bytes_of_x + weight.nbytes,
    }


def test_a_dry_run_takes_memory_and_the_time_of_a_kernels_bytes(elsewhere):
    found, twice = (elsewhere(norm_of_size, rows, **DRY) for rows in (1 << 17, 1 << 18))
    assert found["grad"] == [1 << 17, 8192]
    assert found["peak"] < 4.1
    rate = found["bytes"] / found["ms"]
    assert twice["bytes"] / twice["ms"] == pytest.approx(rate, rel=0.05)
    assert 0.5e9 < rate < 8e9  # bytes a millisecond: those of device memory


def captured():
    x = random(1 << 20)
    out = torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels.add_kernel[(4096,)](x, x, out, x.numel(), BLOCK=256)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def test_a_dry_run_captures_them_and_each_launch_takes_their_time(elsewhere):
    bytes_of_three = 3 * 4 * (1 << 20)
    assert elsewhere(captured, **DRY) > bytes_of_three / 8e9


def compiled_dry():
    x = torch.empty(1 << 24, device="cuda")
    out = torch.compile(lambda a: torch.ops.spillway_tests.add(a, a) * 2)(x)
    return list(out.shape)


def test_a_dry_run_of_a_compiled_function_with_kernels(elsewhere):
    assert elsewhere(compiled_dry, **DRY) == [1 << 24]


def interpreted_dry():
    return kernels.add(torch.empty(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")).numel()


def test_a_dry_run_under_tritons_own_interpreter_computes_nothing_either(elsewhere):
    assert elsewhere(interpreted_dry, **DRY, TRITON_INTERPRET="1") == 1 << 28


def test_a_launch_returns_a_kernel_with_its_name_as_a_real_one_does():
    x, y = random(1000), random(1000, seed=1)
    out = torch.empty_like(x)
    launched = kernels.add_kernel[(1,)](x, y, out, 1000, BLOCK=1024)
    assert launched.name == "add_kernel"
    assert not hasattr(launched, "n_regs") and not hasattr(launched, "asm")


@pytest.mark.parametrize("failing", range(6))
def test_a_scope_that_cannot_be_opened_leaves_tritons_language_as_it_was(monkeypatch, failing):
    import triton.language as tl
    from spillway import _triton_interpreter as interpreter
    from triton.language.extra.cuda import libdevice

    def names():
        return [dict(tl.__dict__), dict(tl.core.__dict__), dict(libdevice.__dict__), dict(vars(tl.tensor))]

    kernels.add(random(10), random(10))
    before, left, original = names(), [failing], interpreter._with_semantic

    def fails(builtin):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return original(builtin)

    with monkeypatch.context() as patch:
        patch.setattr(interpreter, "_with_semantic", fails)
        with pytest.raises(KeyboardInterrupt):
            kernels.add(random(10), random(10))
    assert not interpreter.is_running()
    assert names() == before
    kernels.add(random(10), random(10))
