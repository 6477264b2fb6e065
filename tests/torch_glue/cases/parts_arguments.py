# SPDX-License-Identifier: Apache-2.0
"""What an OffloadModel refuses, by name, and leaves as it was; how it splits what it accepts."""

import itertools
import pathlib
import random
import threading

import spillway
import torch
from spillway._parts import split_by_bytes
from torch import nn
from torch.nn.parameter import is_lazy

from cases import case
from cases.measure import same
from cases.parts import WIDTH, batch, layers


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def with_a_forward_of_its_own():
    model = nn.Sequential(nn.Linear(2, 2))
    model.forward = lambda x: x
    return model


def places(model):
    """Which tensors the model has, and where."""
    return [
        (id(t), t.device, None if is_lazy(t) else t.data_ptr())
        for t in (*model.parameters(), *model.buffers())
    ]


def refusal(*arguments):
    """What is wrong with these, as `Type: text`."""
    try:
        spillway.OffloadModel(*arguments)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{arguments} are accepted")


@case
def what_cannot_be_used_is_refused_by_name():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    parts = list(model)
    last = torch.cuda.device_count() - 1
    devices = f"device must be a CUDA device from cuda:0 to cuda:{last}, not"
    places = "offload_device must be the CPU, not"
    directory = "A model cannot be in a directory. Use a machine with enough host memory for its "
    directory += "parameters, gradients and optimizer states."
    for arguments, text in (
        (
            (nn.Linear(2, 2), "cuda"),
            "TypeError: model must be an nn.Sequential or a list of modules, not Linear",
        ),
        ((nn.Sequential(), "cuda"), "ValueError: model must have at least one layer, not 0"),
        (([], "cuda"), "ValueError: model must have at least one layer, not 0"),
        (
            ([nn.Linear(2, 2), 3], "cuda"),
            "TypeError: model[1] must be an nn.Module, not int",
        ),
        ((model, "cpu"), f"ValueError: {devices} 'cpu'"),
        ((model, "gpu"), f"ValueError: {devices} 'gpu'"),
        ((model, -1), f"ValueError: {devices} -1"),
        ((model, f"cuda:{last + 1}"), f"ValueError: {devices} 'cuda:{last + 1}'"),
        ((model, None), f"TypeError: {devices} None"),
        ((model, True), f"TypeError: {devices} True"),
        ((model, "cuda", "cuda"), f"ValueError: {places} 'cuda'. {directory}"),
        ((model, "cuda", "/tmp"), f"ValueError: {places} '/tmp'. {directory}"),
        ((model, "cuda", pathlib.Path("/")), f"ValueError: {places} {pathlib.Path('/')!r}. {directory}"),
        ((model, "cuda", 3), f"TypeError: {places} 3"),
        ((model, "cuda", "cpu", 0), "ValueError: num_slices must be from 1 to 2, not 0"),
        ((model, "cuda", "cpu", 3), "ValueError: num_slices must be from 1 to 2, not 3"),
        ((parts, "cuda", "cpu", 0), "ValueError: num_slices must be at least 1, not 0"),
        ((parts, "cuda", "cpu", "x"), "TypeError: num_slices must be an integer, not 'x'"),
        (
            (model, "cuda", "cpu", 1, "yes"),
            "TypeError: checkpoint_activation must be True or False, not 'yes'",
        ),
        (
            (model, "cuda", "cpu", 1, True, 0),
            "ValueError: num_microbatches must be at least 1, not 0",
        ),
    ):
        assert refusal(*arguments) == text, (refusal(*arguments), text)
    assert all(p.device.type == "cpu" and p.grad is None for p in model.parameters())


@case
def a_model_that_parts_cannot_be_made_of_is_refused_and_left_as_it_was():
    torch.manual_seed(1)
    wrapped = spillway.OffloadModel(nn.Sequential(nn.Linear(2, 2)), "cuda", num_slices=1)
    for model, text in (
        (Residual(nn.Linear(2, 2)), "not Residual"),
        (with_a_forward_of_its_own(), "not Sequential"),
        (
            spillway.checkpoint_wrapper(nn.Sequential(nn.Linear(2, 2))),
            "forward",
        ),
        (nn.Sequential(nn.Linear(2, 2, device="meta")), "parameter 0.weight"),
        (nn.Sequential(nn.BatchNorm1d(2, affine=False).to("meta")), "buffer 0.running_mean"),
        (nn.Sequential(nn.LazyLinear(3)), "parameter 0.weight"),
        (nn.Sequential(nn.ReLU(), wrapped), "OffloadModel, whose parameters are already offloaded (1)"),
    ):
        before = places(model)
        found = refusal(model, "cuda", "cpu", 1)
        assert text in found, (found, text)
        assert places(model) == before, found
    assert "OffloadModel" in refusal([wrapped], "cuda")
    wrapped(torch.ones(1, 2, device="cuda")).sum().backward()
    assert all(p.grad.count_nonzero() > 0 for p in wrapped.parameters())


@case
def a_subclass_of_sequential_that_runs_as_one_is_none_of_those():
    class Named(nn.Sequential):
        pass

    net, plain = spillway.OffloadModel(Named(*layers()), "cuda"), layers().cuda()
    assert same([net(batch())], [plain(batch())])


@case
def a_residual_model_is_given_as_a_list_that_does_the_same():
    class Add(nn.Module):
        def forward(self, x, start):
            return x + start

    class Keep(nn.Module):
        def __init__(self, layer, first):
            super().__init__()
            self.layer, self.first = layer, first

        def forward(self, x, start=None):
            return self.layer(x), x if self.first else start

    torch.manual_seed(1)
    plain = Residual(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)).cuda()
    torch.manual_seed(1)
    made = [nn.Linear(WIDTH, WIDTH) for _ in range(2)]
    net = spillway.OffloadModel([Keep(made[0], True), Keep(made[1], False), Add()], "cuda")
    assert same([net(batch())], [plain(batch())])


@case
def parameters_may_be_converted_and_replaced():
    def run(net):
        seen = []
        for change in (
            lambda: net.double(),
            lambda: net.float(),
            lambda: net.load_state_dict({n: v / 2 for n, v in net.state_dict().items()}),
            lambda: net.load_state_dict({n: v / 2 for n, v in net.state_dict().items()}, assign=True),
            lambda: net.requires_grad_(True),
            lambda: net.cpu() and net.cuda(),
        ):
            change()
            net.zero_grad()
            loss = net(batch().to(next(net.parameters()).dtype)).square().sum()
            loss.backward()
            seen += [loss, *(p.grad for p in net.parameters())]
        return seen

    net = spillway.OffloadModel(layers(), "cuda", num_slices=6)
    assert same(run(net), run(layers().cuda()))
    classes = spillway.stats()["model_state"]["classes"]
    assert classes["parameters"]["offloaded_bytes"] == 5 * net.model[0][0].weight.nbytes, classes


@case
def a_second_thread_may_run_in_the_middle_of_a_pass():
    model, plain = layers(), layers().cuda()
    net = spillway.OffloadModel(model, "cuda", num_slices=6)
    found = []

    def in_the_middle(module, inputs):
        if not found:
            found.append(None)
            thread = threading.Thread(target=lambda: found.append(net(batch(1)).detach()))
            thread.start()
            thread.join()

    handle = model[2][0].register_forward_pre_hook(in_the_middle)
    loss = net(batch()).square().sum()
    handle.remove()
    loss.backward()
    plain(batch()).square().sum().backward()
    assert same(found[1:], [plain(batch(1))])
    assert same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])


@case
def layers_are_split_so_that_the_largest_part_is_small():
    sizes = [5, 1, 1, 1, 5, 2]
    made = [nn.Linear(size, 1, bias=False) for size in sizes]
    parts = [[m.in_features for m in part] for part in split_by_bytes(made, 3)]
    assert (
        [size for part in parts for size in part] == sizes and len(parts) == 3 and max(map(sum, parts)) == 7
    ), parts
    assert [len(part) for part in split_by_bytes(made, 6)] == [1] * 6
    assert len(split_by_bytes([nn.ReLU(), nn.ReLU()], 2)) == 2


@case
def no_other_split_has_a_smaller_largest_part():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(200):
        sizes = [draw.choice((0, 1, 2, 3, 7, 20)) for _ in range(draw.randint(1, 8))]
        made = [nn.Linear(size, 1, bias=False) if size else nn.ReLU() for size in sizes]
        for count in range(1, len(sizes) + 1):
            parts = split_by_bytes(made, count)
            assert [m for part in parts for m in part] == made and all(parts) and len(parts) == count
            largest = max(sum(p.nbytes for m in part for p in m.parameters()) for part in parts)
            least = min(
                max(sum(sizes[a:b]) for a, b in itertools.pairwise((0, *cuts, len(sizes))))
                for cuts in itertools.combinations(range(1, len(sizes)), count - 1)
            )
            assert largest == 4 * least, (seed, sizes, count)
