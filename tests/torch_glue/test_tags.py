# SPDX-License-Identifier: Apache-2.0
"""What memory is for: scopes, roles, and the accounting that follow them."""

import pytest

NETWORK = """
import threading
import spillway, torch
from torch import nn
spillway.use_allocator()
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(256)
        self.up = nn.Linear(256, 512)
        self.down = nn.Linear(512, 256)
    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).tanh())

def network():
    return nn.Sequential(Block(), Block(), nn.Linear(256, 16)).to("cuda")

from spillway._load import glue
glue = glue()
tag_of = glue.tag_of
"""

SCOPES = """
result = {}
with spillway.tag("encoder"):
    a = torch.ones(1000, device="cuda")
    with spillway.tag("mlp"):
        b = torch.ones(1000, device="cuda")
    c = torch.ones(1000, device="cuda")
    other = []
    thread = threading.Thread(target=lambda: other.append(torch.ones(1000, device="cuda")))
    thread.start(); thread.join()
d = torch.ones(1000, device="cuda")
result["nested"] = [tag_of(x) for x in (a, b, c, other[0], d)]

@spillway.tag("decorated")
def make():
    return torch.ones(1000, device="cuda")
result["decorated"] = tag_of(make())

try:
    with spillway.tag("outer"), spillway.tag("inner"):
        raise KeyError
except KeyError:
    pass
result["after an exception"] = glue.current_tag()

wrong = []
for name in ("", "a//b", "a*", "/a"):
    try:
        with spillway.tag(name):
            pass
    except ValueError as error:
        wrong.append(str(error))
result["refused"] = len(wrong)
result["after a refusal"] = glue.current_tag()
try:
    spillway.tag(3)
except TypeError as error:
    result["type"] = str(error)

def gradient(forward, around=""):
    x = torch.ones(64, 64, device="cuda", requires_grad=True)
    seen = []
    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()
        @staticmethod
        def backward(ctx, grad):
            seen.append((threading.get_ident() != main, glue.current_tag()))
            return grad.clone()
    y = forward(x, Probe.apply)
    if around:
        with spillway.tag(around):
            y.sum().backward()
    else:
        y.sum().backward()
    return seen
main = threading.get_ident()

def scoped(x, probe):
    with spillway.tag("mlp"):
        return probe(x) * 2
def two(x, probe):
    with spillway.tag("first"):
        y = probe(x)
    with spillway.tag("second"):
        return probe(y)
def plain(x, probe):
    return probe(x)
result["backward"] = [gradient(scoped), gradient(two), gradient(plain), gradient(plain, "around"),
                      gradient(scoped, "around")]
result["end"] = glue.current_tag()
result["elsewhere"] = gradient(plain)
report(result)
"""


@pytest.fixture(scope="module")
def scopes():
    from conftest import run

    return run(NETWORK + SCOPES)


def test_scopes_nest_hold_for_their_thread_and_end(scopes):
    assert scopes["nested"] == ["encoder", "encoder/mlp", "encoder", "", ""]
    assert scopes["decorated"] == "decorated"


def test_an_exception_ends_its_scopes(scopes):
    assert scopes["after an exception"] == ""


def test_bad_names_are_refused_and_open_nothing(scopes):
    assert scopes["refused"] == 4
    assert scopes["after a refusal"] == ""
    assert scopes["type"] == "tag must be a string, not 3"


def test_a_backward_pass_belongs_to_the_scope_of_what_was_recorded(scopes):
    recorded, two, plain, _, both = scopes["backward"]
    assert recorded == [[True, "mlp"]]
    assert two == [[True, "second"], [True, "first"]]
    assert plain == [[True, ""]]
    assert both == [[True, "mlp"]]


def test_what_was_recorded_outside_scopes_belongs_to_the_scope_around_backward(scopes):
    assert scopes["backward"][3] == [[True, "around"]]
    assert scopes["elsewhere"] == [[True, ""]]
    assert scopes["end"] == ""


ROLES = """
import hashlib
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

def hooks():
    return [len(table) for table in (modules._global_forward_pre_hooks, modules._global_forward_hooks,
            modules._global_forward_hooks_always_called, optimizers._global_optimizer_pre_hooks,
            optimizers._global_optimizer_post_hooks)]

def train(seed, look=lambda *_: None):
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    bits = hashlib.sha256()
    for step in range(3):
        x = torch.randn(32, 256).to("cuda")
        loss = model(x).square().mean()
        if step == 1:
            look("forward", model, optimizer, x)
        loss.backward()
        bits.update(loss.detach().cpu().numpy().tobytes())
        for parameter in model.parameters():
            bits.update(parameter.grad.cpu().numpy().tobytes())
        optimizer.step()
        if step == 1:
            look("step", model, optimizer, x)
        optimizer.zero_grad(set_to_none=True)
    return bits.hexdigest()

result = {}
before = hooks()
plain = train(1)
spillway.tags.watch()
spillway.tags.watch()

def look(when, model, optimizer, x):
    tags = spillway.memory.by_tag()["tags"]
    result[when] = {name: each["allocated"] for name, each in tags.items() if each["allocated"]}
    result[when + " peaks"] = sorted(name for name, accounting in tags.items() if accounting["peak"])
    if when == "forward":
        result["input"] = tag_of(x)
        result["parameters"] = sorted({tag_of(p) for p in model.parameters()})
    else:
        result["gradients"] = sorted({tag_of(p.grad) for p in model.parameters()})
        state = [v for s in optimizer.state.values() for v in s.values() if v.is_cuda]
        result["state"] = sorted({tag_of(v) for v in state})

watched = train(1, look)
result["equal"] = watched == plain

model = network()
with spillway.tag("mine"):
    y = model(torch.randn(8, 256, device="cuda"))
y.sum().backward()
result["scope wins"] = [tag_of(y), sorted({tag_of(p.grad) for p in model.parameters()})]

class Breaks(nn.Module):
    def forward(self, x):
        raise KeyError
try:
    nn.Sequential(nn.Linear(256, 256).to("cuda"), Breaks())(torch.ones(4, 256, device="cuda"))
except KeyError:
    pass
result["after an exception"] = glue.current_tag()

def note_workspaces():
    tags = spillway.memory.by_tag()["tags"]
    names = "activation", "workspace/cublas"
    result["cublas"].append([tags[name]["allocated"] if name in tags else 0 for name in names])

result["cublas"] = []
torch._C._cuda_clearCublasWorkspaces()
note_workspaces()
single = nn.Linear(256, 256).to("cuda")
optimizer = torch.optim.SGD(single.parameters(), lr=1e-3)
kept = single(torch.ones(4, 256, device="cuda"))
note_workspaces()
optimizer.step()
note_workspaces()

late = torch.optim.SGD([torch.ones(1000, device="cuda", requires_grad=True)], lr=1, momentum=0.9)
held = late.param_groups[0]["params"][0]
held.grad = torch.ones_like(held)
late.step()
result["bare parameter"] = [tag_of(held), tag_of(late.state[held]["momentum_buffer"])]

from torch.utils.checkpoint import checkpoint
probe = []
class Noting(nn.Linear):
    def forward(self, x):
        probe.append(glue.current_tag())
        return super().forward(x)
whole = nn.Sequential(Noting(256, 256)).to("cuda")
checkpoint(whole, torch.ones(4, 256, device="cuda", requires_grad=True), use_reentrant=False).sum().backward()
result["recomputed"] = probe

spillway.tags.unwatch()
result["hooks"] = hooks() == before
model(torch.ones(4, 256, device="cuda"))
result["unwatched"] = [glue.current_tag(), train(1) == plain]
report(result)
"""


@pytest.fixture(scope="module")
def roles():
    from conftest import run

    return run(NETWORK + ROLES)


def test_watching_changes_no_bit(roles):
    assert roles["equal"]


def test_parameters_inputs_gradients_and_state_are_known(roles):
    assert roles["parameters"] == ["parameter"]
    assert roles["input"] == "input"
    assert roles["gradients"] == ["gradient"]
    assert roles["state"] == ["optimizer"]


def test_activations_are_known_by_their_module(roles):
    live = roles["forward"]
    assert live["activation/0.norm"] > 0 and live["activation/1.norm"] > 0 and live["activation/0"] > 0
    assert "gradient" not in live
    parameters = 2 * (2 * 256 + 256 * 512 * 2 + 512 + 256) + 256 * 16 + 16
    assert live["parameter"] >= parameters * 4


def test_what_a_backward_pass_needs_for_itself_is_workspace(roles):
    peaks = roles["step peaks"]
    assert "workspace/0.up" in peaks and "workspace/1.norm" in peaks
    stays = {name: size for name, size in roles["step"].items() if name.startswith("workspace")}
    assert stays == {"workspace/cublas": roles["forward"]["workspace/cublas"]}


def test_cublas_s_workspaces_belong_to_no_module(roles):
    """Whatever multiplied matrices first has made them, in its forward or its backward pass."""
    cleared, multiplied, stepped = roles["cublas"]
    assert cleared[1] == 0 and multiplied[1] == 0
    assert stepped[1] >= 1 << 20 and stepped[1] == multiplied[0] - stepped[0]


def test_a_scope_of_the_program_wins_over_roles(roles):
    output, gradients = roles["scope wins"]
    assert output == "mine"
    assert "mine" in gradients and set(gradients) <= {"mine", "gradient"}


def test_a_module_that_raises_leaves_no_role_behind(roles):
    assert roles["after an exception"] == ""


def test_parameters_without_a_module_are_met_by_their_optimizer(roles):
    assert roles["bare parameter"] == ["parameter", "optimizer"]


def test_what_is_recomputed_in_a_backward_pass_is_activation(roles):
    assert roles["recomputed"] == ["activation/0", "activation/0"]


def test_nothing_is_left_when_watching_ends(roles):
    assert roles["hooks"]
    assert roles["unwatched"] == ["", True]


SUMMARY = """
before = spillway.memory.by_tag()
with spillway.tag("kept"):
    kept = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
    odd = torch.empty(1000, dtype=torch.uint8, device="cuda")
with spillway.tag("gone"):
    gone = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
del gone
accounting = spillway.memory.by_tag()
try:
    spillway.memory.by_tag(99)
except ValueError as error:
    refused = str(error)
live = sum(tag["allocated"] for tag in accounting["tags"].values())
report({"before": before, "accounting": accounting, "text": spillway.memory.summary(), "refused": refused,
        "sum": live, "torch": torch.cuda.memory_allocated()})
"""


@pytest.fixture(scope="module")
def summary():
    from conftest import run

    return run(NETWORK + SUMMARY)


def test_the_accounting_by_tag_is_the_heaps(summary):
    tags = summary["accounting"]["tags"]
    assert tags["kept"] == {
        "allocated": (3 << 20) + 1024,
        "paused": 0,
        "waste": 24,
        "peak": (3 << 20) + 1024,
        "blocks": 2,
    }
    assert tags["gone"] == {"allocated": 0, "paused": 0, "waste": 0, "peak": 5 << 20, "blocks": 0}
    assert summary["sum"] == summary["accounting"]["total"]["allocated"] == summary["torch"]


def test_totals_add_up_to_reserved_memory(summary):
    total = summary["accounting"]["total"]
    assert total["allocated"] + total["cached"] == total["reserved"]
    assert sum(free["bytes"] for free in summary["accounting"]["cached"]) == total["cached"] >= 5 << 20
    assert total["rounding"] == 24
    assert summary["before"]["total"]["reserved"] == 0


def test_the_summary_is_a_table(summary):
    lines = summary["text"].splitlines()
    assert "(emulated)" in lines[0] or "emulated" not in lines[0]
    assert lines[1].split() == ["tag", "allocated", "cached", "paused", "waste", "peak"]
    rows = {line.split()[0]: line for line in lines[2:]}
    assert rows["kept"].split()[1:] == ["3.0", "MiB", "0", "B", "24", "B", "3.0", "MiB"]
    assert rows["gone"].split()[-2:] == ["5.0", "MiB"]
    assert lines[-3] == "offloaded storages: 0 B"
    assert lines[-2].startswith("reserved: ")
    assert lines[-1].startswith("waste: 24 B rounding, ")


def test_a_gpu_that_is_not_there_is_refused(summary):
    assert "99" in summary["refused"]


def test_of_pytorchs_allocator_the_summary_states_what_it_cannot_know(program):
    accounting, text = program(
        "import spillway, torch\n"
        "x = torch.empty(3 << 20, dtype=torch.uint8, device='cuda')\n"
        "with spillway.tag('named'):\n    y = torch.ones(1000, device='cuda')\n"
        "report([spillway.memory.by_tag(), spillway.memory.summary()])"
    )
    assert accounting["allocator"] == "native" and accounting["tags"] == {}
    assert accounting["total"]["allocated"] >= 3 << 20
    assert accounting["total"]["stranded"] is None and accounting["total"]["pending"] is None
    assert "by tag: unknown" in text and "unknown stranded" in text


def test_a_summary_before_there_is_any_memory_leaves_the_choice_of_the_allocator(program):
    program("import spillway\nspillway.memory.summary()\nspillway.use_allocator()\nreport(None)\n")
