# SPDX-License-Identifier: Apache-2.0
"""The managers that torchtune, TRL and Axolotl users know: everything moves but what the head saves."""

import copy
import pickle
import types
import warnings

import spillway
import torch
from spillway._heads import find_heads
from spillway.compat import torchtune, trl
from torch import nn

from cases import case
from cases.measure import Copied, residency, same

WIDTH = 64


class Model(nn.Module):
    """Blocks and a head, as language models have them."""

    def __init__(self, head="lm_head"):
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(3)))
        self.named_head = head
        setattr(self, head, nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 8)))

    def forward(self, x):
        return getattr(self, self.named_head)(self.blocks(x))


def model(head="lm_head"):
    torch.manual_seed(5)
    return Model(head).cuda()


def batch(rows=32):
    """Nothing else references it: what something holds does not move a second time."""
    torch.manual_seed(6)
    return torch.randn(rows, WIDTH, device="cuda")


def gradients(net, manager, rows=32):
    """The gradients of one step, and the copied bytes."""
    net.zero_grad()
    with Copied() as copied:
        with manager:
            loss = net(batch(rows)).square().sum()
        loss.backward()
    return [p.grad.clone() for p in net.parameters()], copied


def out(net, **options):
    """The bytes that a step copies to the host under the model's own manager, whose bits are plain's."""
    manager = spillway.compat.get_act_offloading_ctx_manager(net, **options)
    found, copied = gradients(net, manager)
    assert same(found, gradients(net, spillway.compat.NoOpManager())[0])
    return copied.out


def plain(head="lm_head"):
    return gradients(model(head), spillway.compat.NoOpManager())


# A block saves its linear layer's input and its GELU's; the first input is no activation of the model's, but
# it is saved, and moves too. Both of a block are WIDTH wide. The loss saves the head's output: 32 x 8.
ACTIVATION = 32 * WIDTH * 4
WITHOUT_HEAD = 6 * ACTIVATION + 32 * 8 * 4
WITH_HEAD = WITHOUT_HEAD + 3 * ACTIVATION


def peak(stash):
    """The most device memory that a forward pass under a manager with this stash needs besides parameters."""
    net, x = model(), batch()
    net.blocks(x).sum().backward()  # the libraries' workspaces
    torch.cuda.synchronize()
    spillway.step()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with spillway.compat.OffloadActivations(max_fwd_stash_size=stash):
        for _ in range(4):
            x = net.blocks(x)
    most = torch.cuda.max_memory_allocated() - before
    x.sum().backward()
    return most


@case
def everything_moves_but_what_the_head_saves():
    for head in ("lm_head", "output", "score", "classifier", "head", "embed_out"):
        assert out(model(head)) == WITHOUT_HEAD, head


@case
def without_a_managed_head_everything_moves():
    net = model()
    found, copied = gradients(net, spillway.compat.OffloadActivations())
    assert copied.out == WITH_HEAD, (copied.out, WITH_HEAD)
    assert same(found, plain()[0])


class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.inner = base

    def get_base_model(self):
        return self.inner

    def forward(self, x):
        return self.inner(x)


@case
def the_head_of_a_wrapped_model_is_found():
    for wrap in (nn.DataParallel, Adapter, lambda net: nn.DataParallel(Adapter(net))):
        assert out(wrap(model())) == WITHOUT_HEAD


@case
def a_head_that_the_model_names_itself_is_found():
    net = model("final")
    net.get_output_embeddings = lambda: net.final
    assert out(net) == WITHOUT_HEAD


@case
def a_part_that_is_called_module_is_no_wrapper():
    net = model()
    net.module = nn.Linear(WIDTH, WIDTH).cuda()  # unused here, and without a head
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manager = spillway.compat.get_act_offloading_ctx_manager(net)
    with Copied() as copied:
        with manager:
            loss = net(batch()).square().sum()
        loss.backward()
    assert copied.out == WITHOUT_HEAD


@case
def a_compiled_models_head_is_found():
    net = torch.compile(model(), backend="eager")
    assert list(find_heads(net)) == [net._orig_mod.lm_head]


@case
def a_model_that_cannot_name_its_head_is_searched():
    def raises():
        raise NotImplementedError("no head here")

    net = model()
    net.get_output_embeddings = raises
    assert out(net) == WITHOUT_HEAD


@case
def a_head_tied_to_the_embedding_is_found():
    class Tied:
        def __init__(self, weight):
            self.linear = nn.Linear(WIDTH, 8, bias=False)
            self.linear.weight = weight

        def __call__(self, x):
            return self.linear(x)

    net = model("unheard_of")
    net.output = Tied(net.unheard_of[2].weight)
    spillway.compat.get_act_offloading_ctx_manager(net)
    assert net.output.linear._forward_hooks and not net.unheard_of._forward_hooks


@case
def a_second_manager_changes_nothing_in_the_model():
    net = model()
    spillway.compat.get_act_offloading_ctx_manager(net)
    hooks = len(net.lm_head._forward_hooks)
    assert out(net) == WITHOUT_HEAD
    assert len(net.lm_head._forward_hooks) == hooks == 1


@case
def a_model_without_a_head_is_warned_about_once_and_only_then():
    def warned(net, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            spillway.compat.get_act_offloading_ctx_manager(net, **options)
        return [str(one.message) for one in caught]

    assert warned(model()) == []
    (text,) = warned(model("unheard_of"))
    assert "Model" in text and "keep_on_device" in text
    assert warned(model("unheard_of"), warn_if_no_head=False) == []
    assert warned(model("unheard_of"), enabled=False) == []


@case
def a_module_can_be_kept_on_the_device():
    net = model("unheard_of")
    spillway.memory.keep_on_device(net.unheard_of, net.blocks[0])
    assert out(net, warn_if_no_head=False) == WITHOUT_HEAD - 2 * ACTIVATION


@case
def a_head_that_raises_leaves_nothing_behind():
    net = model()
    manager = spillway.compat.get_act_offloading_ctx_manager(net)
    good, net.lm_head[1].forward = net.lm_head[1].forward, None
    try:
        gradients(net, manager)
        raise AssertionError("it was to raise")
    except TypeError:
        pass
    # The head's own region has ended, too, before the one around it.
    with manager, Copied() as copied:
        try:
            net(batch())
            raise AssertionError("it was to raise")
        except TypeError:
            net.lm_head[1].forward = good
        before = residency()["stashed_bytes"]
        (batch().requires_grad_() * 2).tanh().sum().backward()
    assert copied.out > 0 and residency()["stashed_bytes"] - before == ACTIVATION
    assert gradients(net, manager)[1].out == WITHOUT_HEAD


@case
def not_enabled_is_a_manager_that_moves_nothing():
    net = model()
    manager = spillway.compat.get_act_offloading_ctx_manager(net, enabled=False)
    assert isinstance(manager, spillway.compat.NoOpManager) and not net.lm_head._forward_hooks
    assert gradients(net, manager)[1].out == 0


@case
def a_no_op_manager_inside_keeps_its_part():
    inputs = torch.randn(32, WIDTH, device="cuda", requires_grad=True)
    with Copied() as copied, spillway.compat.OffloadActivations():
        with spillway.compat.NoOpManager():
            inner = (inputs * 2).sigmoid()
        (inner * 2).tanh().sum().backward()
    assert copied.out == ACTIVATION  # tanh's result; sigmoid's stays


@case
def the_managers_decorate_functions():
    net = model()

    @spillway.compat.OffloadActivations()
    def forward(x):
        return net(x)

    with Copied() as copied:
        forward(batch()).sum().backward()
    assert copied.out == WITH_HEAD - 32 * 8 * 4  # a sum saves nothing


@case
def the_smallest_size_is_in_bytes_and_counts():
    net = model()
    for least, expected in ((ACTIVATION, WITH_HEAD - 32 * 8 * 4), (ACTIVATION + 1, 0), (0, WITH_HEAD)):
        _, copied = gradients(net, spillway.compat.OffloadActivations(min_offload_size=least))
        assert copied.out == expected, (least, copied.out)


@case
def pinned_memory_and_streams_or_not_move_the_same_bytes_and_give_the_same_results():
    for options in ({"use_pin_memory": True}, {"use_pin_memory": False}, {"use_streams": False}):
        manager = spillway.compat.OffloadActivations(**options)
        found, copied = gradients(model(), manager)
        assert all(getattr(manager, name) is value for name, value in options.items())
        assert copied.out == WITH_HEAD and copied.back > 0 and same(found, plain()[0]), options


@case
def several_forward_passes_may_come_before_their_backward_passes():
    net, manager = model(), spillway.compat.OffloadActivations()
    a, b = torch.randn(2, 32, WIDTH, device="cuda")

    def total(first, second):
        net.zero_grad()
        first.backward()
        second.backward()
        return [p.grad.clone() for p in net.parameters()]

    expected = total(net(a).square().sum(), net(b).square().sum())
    with manager:
        first = net(a).square().sum()
    with manager:
        second = net(b).square().sum()
    with Copied() as copied:
        assert same(total(first, second), expected)
    assert copied.back > WITH_HEAD


@case
def the_backward_pass_may_run_inside():
    net = model()
    with Copied() as copied, spillway.compat.OffloadActivations():
        net(batch()).square().sum().backward()
    assert copied.out == WITH_HEAD and copied.back > 0
    assert same([p.grad for p in net.parameters()], plain()[0])


@case
def a_branch_that_is_never_used_leaves_nothing():
    net, manager = model(), spillway.compat.OffloadActivations(min_offload_size=1)
    for _ in range(3):
        with manager:
            with Copied() as copied:
                used = net(torch.randn(4, WIDTH, device="cuda"))
            with Copied() as of_unused:
                _unused = net(torch.randn(4, WIDTH, device="cuda"))
        assert copied.out > 0 and of_unused.out > 0
        assert residency()["on_host_bytes"] >= of_unused.out
        used.sum().backward()
        del used, _unused
    torch.cuda.synchronize()
    assert spillway.stats()["devices"][0]["residency"]["on_host_bytes"] == 0


@case
def managers_and_managed_models_can_be_copied():
    net = model()
    manager = spillway.compat.get_act_offloading_ctx_manager(net)
    with manager:
        counterpart = pickle.loads(pickle.dumps(manager))
    assert repr(counterpart) == repr(manager) == repr(copy.deepcopy(manager))
    other = copy.deepcopy(net)
    assert gradients(other, counterpart)[1].out == WITHOUT_HEAD


@case
def a_trainer_class_gets_it_from_the_mixin():
    class Arguments:
        activation_offloading = True

    class Trainer:
        def __init__(self, net):
            self.model, self.args = net, Arguments()

        def training_step(self, x):
            loss = self.model(x).square().sum()
            loss.backward()
            return loss.detach()

    class Offloading(spillway.compat.ActivationOffloadingMixin, Trainer):
        pass

    net = model()
    with Copied() as copied:
        Offloading(net).training_step(batch())
    assert copied.out == WITHOUT_HEAD and same([p.grad for p in net.parameters()], plain()[0])
    Arguments.activation_offloading = False
    with Copied() as copied:
        Offloading(net).training_step(batch())
    assert copied.out == 0


@case
def the_mixin_replaces_a_trainers_own_offloading():
    class Trainer:  # as TRL's
        args = types.SimpleNamespace(activation_offloading=True)

        def __init__(self, model):
            self.model = model
            self.maybe_activation_offload_context = torch.autograd.graph.save_on_cpu(pin_memory=True)

        def training_step(self, inputs):
            with self.maybe_activation_offload_context:
                loss = self.model(inputs).square().sum()
            loss.backward()

    class Offloading(spillway.compat.ActivationOffloadingMixin, Trainer):
        pass

    net = model()
    with Copied() as copied:
        Offloading(net).training_step(batch())
    assert copied.out > 0  # of the inner hooks Spillway counts nothing
    assert same([p.grad for p in net.parameters()], plain()[0])


@case
def each_project_finds_its_own_order_of_arguments():
    tuned = torchtune.OffloadActivations(True, True, 7, 2048)
    assert (tuned.max_fwd_stash_size, tuned.min_offload_size) == (7, 2048)
    transformer = trl.OffloadActivations(True, True, 2048, 7)
    assert (transformer.max_fwd_stash_size, transformer.min_offload_size) == (7, 2048)
    assert isinstance(torchtune.get_act_offloading_ctx_manager(model(), False), spillway.compat.NoOpManager)
    manager = torchtune.get_act_offloading_ctx_manager(model(), True, use_streams=False)
    assert isinstance(manager, spillway.compat.OffloadActivations) and not manager.use_streams
    assert trl.get_act_offloading_ctx_manager(model(), max_fwd_stash_size=2).max_fwd_stash_size == 2
    assert spillway.compat.OffloadActivations().update_model_params(model()) is None
