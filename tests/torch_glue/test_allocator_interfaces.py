# SPDX-License-Identifier: Apache-2.0
"""The same programs under PyTorch's own allocator and Spillway's interfaces; PyTorch's refusals under one."""

import pytest
from conftest import EMULATED, run

BEGIN = "import torch, spillway\n"
# As in PyTorch's documentation, with nothing of ours but the library.
PLAIN = """torch.cuda.memory.CUDAPluggableAllocator(
    spillway.memory.library_path(), "spillway_malloc", "spillway_free")"""
CHANGE = "torch.cuda.memory.change_current_allocator({})\n"
INTERFACES = {
    "native": BEGIN,
    "subclass": BEGIN + "spillway.use_allocator()\n",
    "pluggable": BEGIN + CHANGE.format("spillway.memory.pluggable_allocator()"),
    "plain": BEGIN + f"made = {PLAIN}\n" + CHANGE.format("made"),
}

LATE = {"SPILLWAY_EMULATE_SCHEDULE": "late"} if EMULATED else {}
OURS = ["subclass", "pluggable", "plain"]
MODELS = ["demo", "resnet", "transformer"]

TRAINING = """
import hashlib

from torch import nn
from torch.nn import functional as F
from spillway.demo import data
from spillway.demo.model import SIZES, Batches, Gpt

class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        def conv(channels, side, step):
            return nn.Conv2d(channels, after, side, step, side // 2, bias=False)
        self.body = nn.Sequential(conv(before, 3, stride), nn.BatchNorm2d(after), nn.ReLU(),
                                  conv(after, 3, 1), nn.BatchNorm2d(after))
        self.way = conv(before, 1, stride)
    def forward(self, x):
        return F.relu(self.body(x) + self.way(x))

def resnet():
    return nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))

def transformer():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(1),
                         nn.Linear(16 * 32, 10))

def bits(tensors):
    return [hashlib.sha256(t.detach().cpu().contiguous().numpy().tobytes()).hexdigest() for t in tensors]

def demo():
    return Gpt(SIZES["small"])

def samples(shape):
    def loss_of(model, step):
        torch.manual_seed(step)
        x, y = torch.randn(shape).cuda(), torch.randint(10, (shape[0],)).cuda()
        return lambda: F.cross_entropy(model(x), y)
    return loss_of

def text(model, step):
    tokens, targets = Batches(data.load(None), SIZES["small"], 0).at(step, "cuda")
    return lambda: model(tokens, targets)

def train(make, loss_of, ratio):
    torch.manual_seed(0)
    model = make().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses, moved = [], []
    for step in range(3):
        forward = loss_of(model, step)
        with spillway.CPUOffload(ratio, tag=make.__name__ + str(ratio)):
            loss = forward()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        last = spillway.stats()["tags"][make.__name__ + str(ratio)]["last"]
        moved.append([last["offloadable_bytes"], last["offloaded_bytes"]])
        losses.append(loss.item())
    return {"bits": [losses, bits([p.float() for p in model.state_dict().values()])], "moved": moved}

runs = {"demo": (demo, text), "resnet": (resnet, samples((4, 3, 16, 16))),
        "transformer": (transformer, samples((4, 16, 32)))}
trained = {name: [train(*run, ratio) for ratio in (0, 0.5)] for name, run in runs.items()}
report({**trained, "held": spillway.stats()["pending_sources"]["peak_bytes"]})
"""


@pytest.fixture(scope="module")
def trained():
    return {interface: run(begin + TRAINING, **LATE) for interface, begin in INTERFACES.items()}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("interface", OURS)
def test_training_has_the_bits_of_the_native_allocator(trained, interface, model):
    for ours, native in zip(trained[interface][model], trained["native"][model], strict=True):
        assert ours["bits"] == native["bits"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("interface", INTERFACES)
def test_half_moves_exactly_its_share(trained, interface, model):
    native = trained["native"][model][1]["moved"]
    assert trained[interface][model][1]["moved"] == native
    assert all(0 < 2 * moved <= offloadable for offloadable, moved in native)


def test_copies_are_fenced_where_the_memory_is_ours_and_held_over_the_native_allocator(trained):
    assert trained["native"]["held"] > 0
    assert [trained[interface]["held"] for interface in OURS] == [0, 0, 0]


CAPTURED = """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(32, 64).cuda()
def step():
    optimizer.zero_grad(set_to_none=False)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
losses = []
for seed in range(3):
    x.copy_(torch.randn(32, 64))
    graph.replay()
    # Memory of others between the replays is not the graph's.
    torch.full((1 << 16,), float("nan"), device="cuda")
    losses.append(loss.item())
report([losses, [p.detach().double().sum().item() for p in model.parameters()]])
"""


@pytest.mark.parametrize("interface", ["subclass", "pluggable"])
def test_a_captured_step_has_the_bits_of_the_native_allocator(interface):
    checked = {**LATE, "SPILLWAY_EMULATE_CHECK": "1"} if EMULATED else {}
    ours, native = (run(INTERFACES[each] + CAPTURED, **checked) for each in (interface, "native"))
    assert ours == native


SURFACE = """
facts = {}
def raised(attempt):
    try:
        attempt()
    except Exception as error:
        return [type(error).__name__, str(error).splitlines()[0]]
MiB = 1 << 20
def make(n):
    return torch.empty(n, dtype=torch.uint8, device="cuda")
def heap():
    return spillway.stats()["devices"][0]["heap"]

a = make(4 * MiB)
facts["live"], facts["empty"] = heap()["allocated_bytes"], make(0).numel()
del a
held = heap()["reserved_bytes"]
torch.cuda.empty_cache()
facts["emptied"] = [held, heap()["reserved_bytes"]]
facts["oom"] = raised(lambda: make(1 << 45))
torch.cuda.set_per_process_memory_fraction(64 * MiB / torch.cuda.mem_get_info()[1])
facts["capped"] = raised(lambda: make(80 * MiB))
torch.cuda.set_per_process_memory_fraction(1.0)
facts["after"] = make(80 * MiB).numel()

# record_stream keeps the bytes for the other stream.
side, values = torch.cuda.Stream(), []
copy = torch.empty(1 << 20).pin_memory()
for value in range(3):
    t = torch.full((1 << 20,), float(value), device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        copy.copy_(t, non_blocking=True)
    t.record_stream(side)
    del t
    torch.full((1 << 20,), -1.0, device="cuda")
    side.synchronize()
    values.append(copy.unique().tolist())
facts["recorded"] = values

def graph():
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        make(MiB)
facts["refused"] = {name: raised(attempt) for name, attempt in ATTEMPTS.items()}
report(facts)
"""


# PyTorch refuses these under a pluggable allocator: docs/entry_points.md has this table.
OF_TORCH_CUDA = (
    "memory_allocated max_memory_allocated memory_reserved memory_stats memory_summary memory_snapshot "
    "reset_peak_memory_stats reset_accumulated_memory_stats get_per_process_memory_fraction MemPool"
)
REFUSED = {
    **{name: f"torch.cuda.{name}" for name in OF_TORCH_CUDA.split()},
    "_snapshot": "torch.cuda.memory._snapshot",
    "_record_memory_history": "torch.cuda.memory._record_memory_history",
    "share": "lambda: make(4).untyped_storage()._share_cuda_()",
    "OutOfMemoryObserver": "lambda: torch._C._cuda_attach_out_of_memory_observer(lambda *_: None)",
    "isHistoryEnabled": "torch._C._cuda_isHistoryEnabled",
    "getCheckpointState": "lambda: torch._C._cuda_getCheckpointState(0, (1, 0))",
    "checkPoolLiveAllocations": "lambda: torch._C._cuda_checkPoolLiveAllocations(0, (1, 0), set())",
}


@pytest.fixture(scope="module", params=["subclass", "pluggable"])
def surface(request):
    attempts = ", ".join(f"{name!r}: {attempt}" for name, attempt in REFUSED.items())
    text = SURFACE.replace("ATTEMPTS", f"{{{attempts}}}")
    return request.param, run(INTERFACES[request.param] + text, SPILLWAY_EMULATE_SCHEDULE="late")


def test_pytorch_refuses_some_under_a_pluggable_allocator_and_the_subclass_sharing_and_unknown_pools(surface):
    interface, facts = surface
    refused = {name: error for name, error in facts["refused"].items() if error}
    if interface == "pluggable":
        assert sorted(refused) == sorted(REFUSED)
        for kind, text in refused.values():
            assert kind in ("RuntimeError", "NotImplementedError") and "luggable" in text
    else:
        assert sorted(refused) == ["checkPoolLiveAllocations", "getCheckpointState", "share"]
        assert "no memory pool" in refused["getCheckpointState"][1]


def test_memory_runs_out_with_pytorchs_error_and_work_goes_on(surface):
    _, facts = surface
    for name in ("oom", "capped"):
        assert facts[name][0] == "OutOfMemoryError" and facts[name][1].startswith("CUDA out of memory.")
    assert facts["after"] == 80 << 20


def test_the_hooks_of_the_pluggable_interface_do_what_the_subclass_does(surface):
    _, facts = surface
    assert facts["live"] == 4 << 20 and facts["empty"] == 0
    assert facts["emptied"][0] >= 4 << 20 and facts["emptied"][1] == 0
    assert facts["recorded"] == [[0.0], [1.0], [2.0]]


@pytest.mark.parametrize("interface", OURS)
def test_spillways_own_functions_know_its_heap_under_every_interface(interface, program):
    accounting, summary, counts, paused, equal = program(
        INTERFACES[interface]
        + """
torch.ones(1, device="cuda")
with spillway.memory.record_trace() as seen, spillway.tag("state"):
    state = torch.ones(1 << 20, device="cuda")
summary = spillway.memory.summary()
paused = spillway.pause("state")
accounting = spillway.memory.by_tag()
spillway.resume("state")
report([accounting, summary, seen.counts, paused, bool((state == 1).all())])
"""
    )
    assert accounting["allocator"] == "spillway" and accounting["tags"]["state"]["paused"] == 4 << 20
    assert "state" in summary and "unknown" not in summary
    assert counts["births"] == counts["live"] == 1
    assert paused["released_bytes"] == 4 << 20 and equal


def test_a_pluggable_allocator_of_another_library_is_not_taken_for_ours(program):
    ours, text = program(
        """
import os, torch, spillway
plain = os.path.join(os.environ["TEST_LIBRARIES"], "libspillway_test_plain_allocator.so")
made = torch.cuda.memory.CUDAPluggableAllocator(plain, "plain_malloc", "plain_free")
torch.cuda.memory.change_current_allocator(made)
torch.ones(1, device="cuda")
with spillway.CPUOffload(0.5):
    pass
try:
    spillway.memory.record_trace()
except RuntimeError as error:
    report([spillway.stats()["uses_spillway"], str(error)])
"""
    )
    assert not ours and "spillway.use_allocator()" in text  # what to do


def test_without_the_layer_for_torch_the_library_still_raises_pytorchs_error(program):
    kind, live = program(
        INTERFACES["plain"]
        + """
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    import sys
    report([[name for name in sys.modules if "_glue" in name], str(error).startswith("CUDA out of memory")])
"""
    )
    assert kind == [] and live


def test_a_mempool_of_the_native_allocator_takes_its_memory_from_the_heap(program):
    live, value, gone = program(
        BEGIN
        + """
import gc
pool = torch.cuda.MemPool(spillway.memory.pluggable_allocator().allocator())
with torch.cuda.use_mem_pool(pool):
    a = torch.full((1 << 20,), 3.0, device="cuda")
def live():
    return spillway.stats()["devices"][0]["heap"]["allocated_bytes"]
before, total = live(), a.sum().item()
del a, pool
gc.collect()
report([before, total, live()])
"""
    )
    assert live >= 4 << 20 and value == 3.0 * (1 << 20) and gone == 0


@pytest.mark.skipif(not EMULATED, reason="a device of a known size")
@pytest.mark.parametrize(
    "interface", ["spillway.memory.pluggable_allocator()", PLAIN], ids=["pluggable", "plain"]
)
@pytest.mark.parametrize("release", ["del pool", "del pool; torch.cuda.empty_cache()"])
def test_the_memory_of_a_mempool_is_there_for_the_native_allocator_when_the_pool_has_ended(
    program, interface, release
):
    assert program(
        BEGIN
        + f"""
import gc
MiB = 1 << 20
held = []
for round in range(3):
    interface = {interface}
    pool = torch.cuda.MemPool(interface.allocator())
    with torch.cuda.use_mem_pool(pool):
        x = [torch.full((20 * MiB,), 1, dtype=torch.uint8, device="cuda") for _ in range(2)]
        ones = [int(each.sum()) for each in x]
    del x
    {release}
    gc.collect()
    held.append(spillway.stats()["devices"][0]["heap"]["reserved_bytes"])
    y = torch.empty(50 * MiB, dtype=torch.uint8, device="cuda")  # of 64
    del y
    torch.cuda.empty_cache()
report([ones, held])
""",
        SPILLWAY_EMULATE_MEMORY="64MiB",
        fresh=True,
    ) == [[20 << 20] * 2, [0, 0, 0]]


def test_another_allocator_gets_no_hooks(program):
    assert program(
        BEGIN
        + """
from spillway._load import glue
try:
    glue().install_pluggable_hooks(torch._C._cuda_getAllocator())
    report(False)
except TypeError as error:
    report("CUDAPluggableAllocator" in str(error))
"""
    )


@pytest.mark.parametrize("interface", ["subclass", "pluggable"])
def test_bad_frees_are_refused_and_counted(interface, program):
    errors, bad, sums = program(
        INTERFACES[interface]
        + """
import ctypes
free = ctypes.CDLL(spillway.memory.library_path()).spillway_free
free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
t = torch.ones(1 << 18, device="cuda")
inside, foreign = t.data_ptr() + 512, torch.ones(4).data_ptr()
gone = torch.ones(1 << 18, device="cuda")
at = gone.data_ptr()
del gone
errors = []
for each in (inside, foreign, at):
    free(each, 4, 0, None)
    try:
        torch.cuda.caching_allocator_delete(each)
    except (RuntimeError, ValueError) as error:
        errors.append([hex(each), str(error)])
report([errors, spillway.stats()["devices"][0]["heap"]["bad_frees"], t.sum().item()])
"""
    )
    assert sums == 1 << 18 and bad >= 2
    if interface == "subclass":
        assert len(errors) == 3 and all(address in error for address, error in errors)
