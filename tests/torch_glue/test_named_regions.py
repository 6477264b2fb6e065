# SPDX-License-Identifier: Apache-2.0
"""Regions by the names of modules, in a job that opens none itself."""

NETWORK = """
import spillway, torch
from spillway import _named_regions
from torch import nn
spillway.use_allocator()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Linear(64, 64)
        self.last = nn.Linear(64, 64)
        self.fails = None

    def forward(self, x):
        x = self.last(self.mlp(x).tanh()).tanh()
        if self.fails:
            raise self.fails
        return x


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block(), Block()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


torch.manual_seed(0)
net = Network().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def step(times=1):
    for _ in range(times):
        once()


def once():
    net(torch.randn(32, 64, device="cuda")).square().mean().backward()
    optimizer.step()


def shares():
    last = {tag: found["last"] for tag, found in spillway.stats()["tags"].items()}
    return {tag: [last[tag]["offloaded_bytes"], last[tag]["offloadable_bytes"]] for tag in sorted(last)}
"""

PATTERNS = """
RATIOS = {
    "one.mlp": 1,
    "solo": 1,
    "?wo": 1,
    "first.a": 0, "first.*": 1,
    "last.*": 1, "last.a": 0,
    "outer": 0, "outer.*.inner": 1,
    "wild.?lp": 0, "wild.*lp": 1,
}
NAMES = (
    "one.mlp", "two.mlp", "three.one.mlp",
    "solo", "end.solo", "solo.end", "last_solo", "end.last_solo",
    "end.two", "two.two",
    "first.a", "first.b", "first.c",
    "last.a", "last.b",
    "outer.leaf", "outer.middle.inner",
    "wild.mlp", "wild.help",
)


class Called(nn.Module):
    "Calls what it holds, and what that holds; each leaf saves its input, which is nothing else's."

    def forward(self, x):
        total = 0
        for below in self.children():
            x = x if isinstance(below, Called) else torch.randn(32, 64, device="cuda")
            total = total + below(x)
        return total


net = Called()
for name in NAMES:
    *above, leaf = name.split(".")
    at = net
    for part in above:
        if not hasattr(at, part):
            at.add_module(part, Called())
        at = getattr(at, part)
    at.add_module(leaf, nn.Linear(64, 64))
net.cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
_named_regions.start(RATIOS)
step(2)
report(shares())
"""

ONE = 32 * 64 * 4  # bytes of what one leaf saves


def test_which_modules_a_pattern_fits(program):
    found = {
        tag: (moved // ONE, offloadable // ONE)
        for tag, (moved, offloadable) in program(NETWORK + PATTERNS).items()
    }
    assert found == {
        # A whole name, or the end of one from a dot on: three.one.mlp, but not two.mlp or last_solo.
        "one.mlp": (2, 2),
        "solo": (2, 2),
        "-wo": (3, 3),  # two.mlp is inside two
        # The first pattern that fits counts.
        "first.a": (0, 1),
        "first.-": (2, 2),
        "last.-": (2, 2),
        # Of modules inside each other the inner one.
        "outer": (0, 1),
        "outer.-.inner": (1, 1),
        # Patterns that differ in wildcards alone have shares, and tags, of their own.
        "wild.-lp": (0, 1),
        "wild.-lp-": (1, 1),
    }


REPLACED = """
class Leaf(nn.Module):
    "Saves its input, which is nothing else's."

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        return self.linear(torch.randn(32, 64, device="cuda"))


class Around(nn.Module):
    def __init__(self, *inner):
        super().__init__()
        self.inner = nn.ModuleList(inner)

    def forward(self, x):
        return sum(inner(x) for inner in self.inner)


net = Around(Leaf(), Leaf()).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
_named_regions.start({"inner.?.inner.0": 0, "inner.?": 1})
step(2)
found = [shares()]
net.inner[0] = Leaf().cuda()
net.inner[1] = Around(net.inner[1])  # inside it the leaf has another name, and share
step(2)
report([*found, shares()])
"""


def test_what_replaces_a_module_after_the_first_call_has_its_name(program):
    before, after = program(NETWORK + REPLACED)
    assert before == {"inner.-": [2 * ONE, 2 * ONE]}
    assert after == {"inner.-": [ONE, ONE], "inner.-.inner.0": [0, ONE]}


LEFT = """
from spillway._load import glue
_named_regions.start({"layers.?": 1})
spillway.tags.watch()


def open_now():
    "The tag of what is allocated: of the region or the module's forward pass that this thread is in."
    return glue().tag_of(torch.ones(64, device="cuda"))


def interrupted(error):
    net.layers[1].fails = error("stop")
    try:
        step()
    except BaseException as raised:
        assert isinstance(raised, error)
    net.layers[1].fails = None


class Passing(BaseException):
    pass


step(4)
found = {"nothing": [open_now(), shares()["layers.-"][0]]}
for error in (KeyError, KeyboardInterrupt, SystemExit, Passing):
    interrupted(error)
    if error is KeyError:
        assert open_now() == ""  # at once, by the hook
    with torch.no_grad():
        net(torch.randn(32, 64, device="cuda"))
    assert open_now() == "", error  # with the next call
    interrupted(error)
    step(4)  # the plan of a step that was cut off is of no use
    found[error.__name__] = [open_now(), shares()["layers.-"][0]]
# A network that was interrupted while another one goes on.
torch.manual_seed(0)
other = net
interrupted(KeyboardInterrupt)
net = Network().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
step(4)
found["another network"] = [open_now(), shares()["layers.-"][0]]
report(found)
"""


def test_a_call_that_is_interrupted_leaves_its_region(program):
    found = program(NETWORK + LEFT)
    ordinary = found.pop("nothing")
    assert ordinary[0] == "" and ordinary[1] > 0
    assert len(found) == 5
    for name, each in found.items():
        assert each == ordinary, name


RECURSION = """
from spillway._load import glue


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x, depth):
        x = self(x, depth - 1) if depth else x
        tags.append(glue().tag_of(torch.ones(64, device="cuda")))
        return self.linear(x).tanh()


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.twice = Twice()

    def forward(self, x):
        return self.twice(x, 2)


_named_regions.start({"twice": 1})
tags = []
Outer().cuda()(torch.randn(32, 64, device="cuda"))
report([tags, glue().tag_of(torch.ones(64, device="cuda"))])
"""


def test_a_module_inside_itself_keeps_its_regions_open(program):
    inside, after = program(NETWORK + RECURSION)
    assert inside == ["twice"] * 3 and after == ""


RANGES = """
from torch.cuda import nvtx
_named_regions.start({"inside": 1})


def saved():
    return (torch.randn(32, 64, device="cuda", requires_grad=True) * 2).sin()  # its input is nothing else's


for _ in range(2):
    nvtx.range_push("inside")
    nvtx.range_push("other")
    total = saved()
    nvtx.range_pop()
    total = total + saved()
    nvtx.range_pop()
    total = total + saved()
    nvtx.range_push("other")
    total = total + saved()
    nvtx.range_pop()
    total.sum().backward()
    spillway.step()
report(shares())
"""


def test_what_is_saved_after_a_range_is_in_no_region(program):
    assert program(NETWORK + RANGES) == {"inside": [2 * ONE, 2 * ONE]}
