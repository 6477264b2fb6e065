# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors between processes, under Spillway's allocator."""

import os
import subprocess
import sys

import pytest

EMULATED = os.environ.get("SPILLWAY_EMULATE") == "1"
PLAIN = os.path.join(os.environ.get("TEST_LIBRARIES", ""), "libspillway_test_plain_allocator.so")

# Two processes; `work` runs in the second one, `main` in the first. What `main` reports is printed.
PROGRAM = """
import gc, os, sys
import spillway
SENDER, RECEIVER = sys.argv[1:3] if len(sys.argv) > 2 else ("ours", "ours")
if (SENDER if __name__ == "__main__" else RECEIVER) == "ours":
    spillway.use_allocator()
import torch
import torch.multiprocessing as mp

N = 1 << 20


def files():
    return len(os.listdir("/proc/self/fd"))


def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


%s

if __name__ == "__main__":
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=work, args=(inbox, outbox))
    child.start()

    def put(value):
        inbox.put(value)

    def get():
        return outbox.get(timeout=120)

    for line in main(put, get):
        print("reported:", line, flush=True)
    child.join(120)
    print("reported: exit", child.exitcode)
"""


@pytest.fixture
def two(tmp_path):
    def run(source, *allocators):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM % source)
        settings = {"SPILLWAY_EMULATE_SCHEDULE": "late", "SPILLWAY_EMULATE_CHECK": "1"} if EMULATED else {}
        done = subprocess.run(
            [sys.executable, str(path), *allocators],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "unordered" not in done.stderr, done.stderr
        said = [line.removeprefix("reported: ") for line in done.stdout.splitlines() if "reported: " in line]
        assert said[-1] == "exit 0", done.stdout + done.stderr
        return said[:-1]

    return run


def test_both_processes_see_what_either_writes(two):
    assert two("""
def work(inbox, outbox):
    whole = inbox.get()
    outbox.put(torch.equal(whole.cpu(), torch.arange(float(N))))
    whole.mul_(2)
    torch.cuda.synchronize()
    outbox.put("written")
    inbox.get()
    outbox.put([whole[0].item(), whole[-1].item()])


def main(put, get):
    whole = torch.arange(float(N), device="cuda")
    put(whole)
    yield get()
    get()
    yield torch.equal(whole.cpu(), 2 * torch.arange(float(N)))
    whole.fill_(7)
    torch.cuda.synchronize()
    put("filled")
    yield get()
""") == ["True", "True", "[7.0, 7.0]"]


def test_views_of_one_block_have_their_offsets_and_are_mapped_once(two):
    assert two("""
def work(inbox, outbox):
    first, second = inbox.get(), inbox.get()
    outbox.put([first[0].item(), second[0].item(), len(second), first.data_ptr() + 40 == second.data_ptr()])
    first[10] = -1
    outbox.put(second[0].item())
    del first, second
    inbox.get()


def main(put, get):
    behind = torch.zeros(N, device="cuda")
    whole = torch.arange(float(N), device="cuda")
    put(whole[100:])
    put(whole[110:120])
    yield get()
    yield get()
    yield behind.sum().item()
    put("end")
""") == ["[100.0, 110.0, 10, True]", "-1.0", "0.0"]


def test_two_tensors_of_one_chunk_are_two(two):
    assert two("""
def work(inbox, outbox):
    first, second = inbox.get(), inbox.get()
    outbox.put([first.sum().item(), second.sum().item()])
    second.zero_()
    torch.cuda.synchronize()
    outbox.put(first.sum().item())
    del first, second
    inbox.get()


def main(put, get):
    n = 1 << 16
    first, second = torch.ones(n, device="cuda"), torch.full((n,), 2.0, device="cuda")
    put(first)
    put(second)
    yield get()
    yield get()
    yield [first.sum().item(), second.sum().item()]
    put("end")
""") == ["[65536.0, 131072.0]", "65536.0", "[65536.0, 0.0]"]


def test_memory_and_files_go_back_when_both_have_released(two):
    assert two("""
def work(inbox, outbox):
    counts = []
    while (tensor := inbox.get()) is not None:
        value = tensor[1].item()
        del tensor
        gc.collect()
        counts.append(files())
        outbox.put(value)
    outbox.put([count == counts[1] for count in counts[1:]])


def main(put, get):
    counts = []
    for i in range(6):
        tensor = torch.full((N,), float(i), device="cuda")
        put(tensor)
        assert get() == i
        during = files()
        del tensor
        gc.collect()
        torch.cuda.ipc_collect()
        counts.append(files())
        assert during > counts[-1]
    put(None)
    yield get()
    yield [count == counts[1] for count in counts[1:]]
    yield torch.cuda.memory_allocated()
    torch.cuda.empty_cache()
    yield torch.cuda.memory_reserved()
""") == [str([True] * 5), str([True] * 5), "0", "0"]


def test_the_block_lives_until_the_receiver_has_released(two):
    assert two("""
def work(inbox, outbox):
    tensor = inbox.get()
    outbox.put("here")
    inbox.get()
    outbox.put(tensor.sum().item())
    del tensor
    gc.collect()
    outbox.put("gone")
    inbox.get()


def main(put, get):
    tensor = torch.ones(N, device="cuda")
    put(tensor)
    get()
    del tensor
    torch.cuda.ipc_collect()
    yield torch.cuda.memory_allocated()
    other = torch.full((N,), 5.0, device="cuda")
    put("go on")
    yield get()
    get()
    del other
    torch.cuda.ipc_collect()
    yield torch.cuda.memory_allocated()
    put("end")
""") == [str(4 << 20), str(float(1 << 20)), "0"]


def test_what_the_receivers_streams_still_do_comes_before_the_unmapping(two):
    assert two("""
def work(inbox, outbox):
    tensor = inbox.get()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        copy = tensor * 3
    del tensor
    gc.collect()
    torch.cuda.synchronize()
    outbox.put(copy.sum().item())
    inbox.get()


def main(put, get):
    tensor = torch.ones(N, device="cuda")
    put(tensor)
    yield get()
    put("end")
""") == [str(3.0 * (1 << 20))]


def test_what_is_shared_is_not_paused_until_it_is_freed(two):
    said = two("""
def work(inbox, outbox):
    tensor = inbox.get()
    outbox.put("here")
    inbox.get()
    outbox.put(tensor.sum().item())
    del tensor
    gc.collect()
    outbox.put("gone")
    inbox.get()


def main(put, get):
    with spillway.tag("weights"):
        tensor, other = torch.ones(N, device="cuda"), torch.ones(N, device="cuda")
    put(tensor)
    get()
    before = torch.cuda.memory_reserved()
    yield error_of(lambda: spillway.pause("weights"))
    yield torch.cuda.memory_reserved() == before, other.sum().item() == N
    put("go on")
    yield get()
    get()
    del tensor
    torch.cuda.ipc_collect()
    yield error_of(lambda: (spillway.pause("weights"), spillway.resume("weights")))
    put("end")
""")
    assert said[0].startswith("RuntimeError") and '"weights" is shared with other processes' in said[0]
    assert said[1:] == ["(True, True)", str(float(1 << 20)), "None"]


def test_small_tensors_are_refused_with_the_reason_and_the_way_out(program):
    error, text = program("""
import spillway
spillway.use_allocator()
import torch
try:
    torch.zeros(4, device="cuda").untyped_storage()._share_cuda_()
except NotImplementedError as error:
    report([type(error).__name__, str(error)])
""")
    assert error == "NotImplementedError"
    assert "at most 128 KiB" in text and "tensor.cpu()" in text and "views" in text


@pytest.mark.skipif(not EMULATED, reason="the test's own allocator takes memory from the emulated runtime")
def test_memory_of_another_allocator_is_refused(program):
    text = program(
        f"LIBRARY = {PLAIN!r}"
        + """
import spillway
spillway.use_allocator()
import torch
plain = torch.cuda.memory.CUDAPluggableAllocator(LIBRARY, "plain_malloc", "plain_free")
pool = torch.cuda.MemPool(plain.allocator())
with torch.cuda.use_mem_pool(pool):
    tensor = torch.zeros(1 << 20, device="cuda")
try:
    tensor.untyped_storage()._share_cuda_()
except NotImplementedError as error:
    report(str(error))
del tensor
"""
    )
    assert "clone" in text


def test_forged_and_stale_handles_are_typed_errors(program):
    errors = program("""
import spillway
spillway.use_allocator()
import torch


def refused(handle):
    try:
        torch.UntypedStorage._new_shared_cuda(0, handle, *rest)
    except Exception as error:
        return type(error).__name__, str(error)


tensor = torch.zeros(1 << 20, device="cuda")
# PyTorch opens no event of its own process, so it is reported that there is none to wait for.
device, handle, *rest = *tensor.untyped_storage()._share_cuda_()[:-1], False
errors = [refused(handle[:size]) for size in range(1, len(handle))]
errors += [refused(b"x" * 64), refused(bytes(66)), refused(handle + b"x")]
errors.append(refused(handle[:32] + bytes(8) + handle[40:]))
report(errors)
""")
    *malformed, forged = errors
    assert {kind for kind, _ in malformed} == {"ValueError"}, malformed
    assert forged[0] == "RuntimeError" and "does not share this memory" in forged[1]


def test_a_handle_of_this_process_maps_its_memory_again(program):
    assert program("""
import spillway
spillway.use_allocator()
import torch
tensor = torch.arange(float(1 << 20), device="cuda")
# PyTorch opens no event of its own process, so it is reported that there is none to wait for.
again = torch.UntypedStorage._new_shared_cuda(*tensor.untyped_storage()._share_cuda_()[:-1], False)
seen = torch.tensor([], device="cuda").set_(again, 0, (1 << 20,), (1,))
tensor[3] = -1
report([seen.data_ptr() != tensor.data_ptr(), torch.equal(seen, tensor), seen[3].item()])
""") == [True, True, -1]


RECEIVE = """
def work(inbox, outbox):
    outbox.put(error_of(lambda: inbox.get().sum().item()))


def main(put, get):
    tensor = torch.ones(N, device="cuda")
    put(tensor)
    yield get()
"""


def test_a_receiver_on_pytorchs_own_allocator_states_that_it_cannot(two):
    (said,) = two(RECEIVE, "ours", "native")
    assert said.startswith("RuntimeError") and "future version of torch" in said


def test_memory_of_pytorchs_own_allocator_is_refused_and_both_must_use_ours(two):
    (said,) = two(RECEIVE, "native", "ours")
    assert said.startswith("ValueError") and "Call spillway.use_allocator() in sender and receiver" in said
