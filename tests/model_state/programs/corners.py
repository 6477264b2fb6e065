# SPDX-License-Identifier: Apache-2.0
"""Programs that reach a managed storage in unusual ways."""

import ctypes
import pickle

import torch
from cases import case, digest, main, managed_stats
from jobs import STEPS, Job, inputs, net, step_as_gradients_come
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


def offloaded_bytes():
    """Of parameters, after all that may has been offloaded; None in a plain run."""
    if managed_stats() is None:
        return None
    from spillway._load import glue

    glue().offload_model_state()
    return managed_stats()["classes"]["parameters"]["offloaded_bytes"]


@case
def an_alias_that_outlives_the_parameter():
    flat = torch.randn(24, 24).cuda()
    alias = flat.detach()
    job = Job()
    job.model[0].weight = nn.Parameter(flat)
    del flat
    job.optimizer = torch.optim.AdamW(job.model.parameters(), lr=0.01)
    job.step()
    job.model[0].weight = nn.Parameter(torch.zeros(24, 24, device="cuda"))
    job.optimizer = torch.optim.AdamW(job.model.parameters(), lr=0.01)
    for _ in range(STEPS):
        job.step()
        alias.add_(1)
    return alias, job.result()


@case
def parameters_in_one_buffer_leave():
    """As those of a recurrent net: all references to the storage are parameters."""
    parts = torch.randn(2, 32, 32).cuda().unbind()
    model = nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in parts)
    for layer, part in zip(model, parts, strict=True):
        layer.weight = nn.Parameter(part)
    del part, parts
    before = offloaded_bytes()
    job = Job(nn.Sequential(*model, nn.Linear(32, 24)))
    x = torch.randn(4, 32, device="cuda")
    job.optimizer = torch.optim.AdamW(job.model.parameters(), lr=0.01)
    for _ in range(STEPS):
        job.optimizer.zero_grad()
        job.model(x).square().mean().backward()
        job.optimizer.step()
    assert before is None or offloaded_bytes() >= 8192
    return job.result()


@case
def an_exception_in_a_later_slice():
    job, seen = Job(nn.Sequential(*(nn.Linear(24, 24) for _ in range(12))), foreach=False), []
    for number in range(4):
        job.backward()
        last = job.model[11].weight
        gradient = last.grad
        if number == 1:
            last.grad = None
            last.grad = torch.sparse_coo_tensor(torch.zeros(2, 1).long(), torch.ones(1), (24, 24)).cuda()
        try:
            job.optimizer.step()
        except RuntimeError as error:
            seen.append(str(error))
            seen.append([len(group["params"]) for group in job.optimizer.param_groups])
            seen.append(digest(job.optimizer))
            job.optimizer.param_groups[0]["lr"] = 0.02
            last.grad = gradient
    assert len(seen) == 3
    seen.append(digest(pickle.loads(pickle.dumps(job.optimizer))))
    return seen, job.result()


@case
def a_closure_that_looks_at_its_optimizer():
    model = nn.Sequential(*(nn.Linear(24, 24) for _ in range(12))).cuda()
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), []

    def closure():
        seen.append([len(group["params"]) for group in optimizer.param_groups])
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
        optimizer.zero_grad()
        loss = model(inputs(4, 24)).square().mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        seen.append(optimizer.step(closure).item())
    return seen, model, optimizer


@case
def an_operator_that_is_written_in_python():
    scale = nn.Linear(24, 24).cuda()

    @torch.library.custom_op("spillway_test::scaled", mutates_args=())
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * scale.weight.detach() + scale.weight.detach().sum()

    @torch.library.custom_op("spillway_test::add_one", mutates_args=("x",))
    def add_one(x: torch.Tensor) -> None:
        x += 1

    job, seen = Job(), []
    for _ in range(STEPS):
        job.step()
        for each in (job.model[0].weight, job.model[2].weight):
            seen.append(scaled(each.detach()).sum().item())
            add_one(each.detach())
    return seen, scale, job.result()


@case
def hooks_on_saved_tensors():
    """They run within operators, and use tensors that are no arguments of these."""
    table = nn.Linear(24, 24).cuda()

    def pack(tensor):
        return tensor, table.weight.detach().sum().item()

    def unpack(packed):
        assert packed[1] == table.weight.detach().sum().item()
        return packed[0]

    job = Job()
    for _ in range(STEPS):
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            job.backward()
        job.optimizer.step()
        with torch.no_grad():
            table.weight += 1
    return table, job.result()


@case
def a_dispatch_mode_with_other_parameters():
    """Python code that implements an operator uses parameters that are not arguments of it."""
    tables = [nn.Linear(24, 24).cuda() for _ in range(3)]
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            if "mm" in str(function):
                scale = tables[0].weight.detach() * tables[1].weight.detach().mean()
                seen.append(torch.nn.functional.linear(scale, tables[2].weight.detach()).sum())
            return function(*arguments, **(options or {}))

    job = Job()
    for _ in range(STEPS):
        with Mode():
            job.backward()
        job.optimizer.step()
    return seen, tables[0], tables[1], tables[2], job.result()


@case
def new_tensors_of_a_parameters_type():
    job, seen = Job(), []
    for _ in range(STEPS):
        job.step()
        weight = job.model[0].weight
        seen += [weight.new(3).zero_(), weight.data.new(weight.detach()), weight.grad.new([1, 2])]
    return seen, job.result()


@case
def a_dispatch_mode():
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            if "mm" in str(function):
                seen.append(torch.stack([each.detach().sum() for each in arguments]))
            return function(*arguments, **(options or {}))

    job = Job()
    for _ in range(STEPS):
        with Mode():
            job.backward()
        job.optimizer.step()
    return seen, job.result()


@case
def control_flow_operators():
    from torch._higher_order_ops.cond import cond

    model = net().cuda()
    x = inputs(4, 24)
    first, second = model[0].weight, model[2].weight
    with torch.no_grad():
        out = cond(x.sum() > 0, lambda x, a, b: x @ a, lambda x, a, b: x @ b, (x, first, second))
    return out, model


@case
def indices_and_masks_in_buffers():
    class Indexed(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(24, 24)
            self.register_buffer("order", torch.randperm(24).repeat(24))
            self.register_buffer("mask", torch.rand(48, 24) > 0.5)

        def forward(self, x):
            out = self.linear(x)[:, self.order][:, :24]
            rows = torch.where(self.mask[:4], out, 0)
            return rows + self.linear.weight[self.order[:4]] + self.linear.weight[:4][self.mask[:4]].sum()

    job = Job(Indexed())
    for _ in range(STEPS):
        job.step()
    return job.result()


@case
def memory_written_on_a_stream_that_was_recorded():
    """A kernel that was given an address, on another stream."""
    job, stream, runtime = Job(), torch.cuda.Stream(), ctypes.CDLL(None)
    for _ in range(STEPS):
        job.backward()
        weight = job.model[0].weight
        address = ctypes.c_void_p(weight.data_ptr())
        stream.wait_stream(torch.cuda.current_stream())
        weight.record_stream(stream)
        handle = ctypes.c_void_p(stream.cuda_stream)
        assert runtime.cudaMemsetAsync(address, 0, ctypes.c_size_t(weight.nbytes // 2), handle) == 0
        done = stream.record_event()
        offloaded_bytes()
        torch.cuda.current_stream().wait_event(done)
        job.optimizer.step()
        offloaded_bytes()
    return job.result()


@case
def gradients_that_are_shared():
    job = Job(nn.Sequential(nn.Linear(24, 24), nn.Linear(24, 24)))
    for _ in range(STEPS):
        job.backward()
        job.model[1].weight.grad = job.model[0].weight.grad
        job.optimizer.step()
        gradient = job.model[0].weight.grad
        job.model.zero_grad()
        job.losses.append(gradient.sum().item())
    return job.result()


@case
def a_gradient_kept_as_the_next_ones_start():
    job = Job()
    job.backward()
    kept = [each.grad for each in job.model.parameters()]
    for _ in range(STEPS):
        job.step()
        for each, old in zip(job.model.parameters(), kept, strict=True):
            each.grad = old
            old.mul_(0.5)
        job.optimizer.step()
    return kept, job.result()


@case
def tensors_without_elements_and_scalars():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.none = nn.Parameter(torch.zeros(0, 4))
            self.scale = nn.Parameter(torch.tensor(2.0))
            self.linear = nn.Linear(24, 24)
            self.register_buffer("empty", torch.zeros(0))

        def forward(self, x):
            return self.linear(x) * self.scale + self.none.sum()

    job = Job(Odd())
    for _ in range(STEPS):
        job.step()
    return job.result()


@case
def a_hook_that_steps_and_drops_the_gradient_before_it_is_managed():
    weights = [nn.Parameter(torch.randn(64, 64).cuda() / 8) for _ in range(4)]
    optimizers = {weight: torch.optim.AdamW([weight], lr=0.01) for weight in weights}
    step_as_gradients_come(optimizers)
    losses = []
    for _ in range(3):
        x = torch.ones(4, 64, device="cuda")
        for weight in weights:
            x = x @ weight
        loss = x.square().mean()
        loss.backward()
        losses.append(loss.item())
    return losses, weights


main()
