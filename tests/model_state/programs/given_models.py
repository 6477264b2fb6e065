# SPDX-License-Identifier: Apache-2.0
"""Models that a script gives to `spillway.offload`, without a budget of the job. In a plain run the calls of
Spillway are left out."""

import gc
import itertools
import os

import torch
from cases import case, digest, main, managed_stats
from jobs import STEPS, Job, inputs, net, step_as_gradients_come, train
from torch import nn

MANAGED = os.environ.get("OFFLOAD_MODELS") == "1"
WIDTH = 1024  # 4 MiB a weight

if MANAGED:
    import spillway
    from spillway._load import glue

    spillway.use_allocator()


def offload(model, **options):
    """In a budget with room, where chaos offloads storages between any two operators."""
    if MANAGED:
        spillway.offload(model, budget="1GiB", **options)
    return model


def resident_bytes(kind="parameters"):
    return managed_stats()["classes"][kind]["resident_bytes"]


def offloaded_bytes(kind="parameters"):
    return managed_stats()["classes"][kind]["offloaded_bytes"]


@case
def an_optimizer_is_found_in_its_first_step():
    job = Job(net())
    offload(job.model)
    for _ in range(STEPS):
        job.step()
    if MANAGED:
        assert managed_stats()["classes"]["optimizer_states"]["storages"] > 0
    return job.result()


@case
def a_model_is_given_before_it_is_on_the_gpu():
    model = offload(net())
    job = Job(model)
    assert not MANAGED or resident_bytes() + offloaded_bytes() > 0
    job.step()
    model.double()
    job.losses.append(model(inputs(4, 24).double()).sum().item())
    model.load_state_dict({name: each.float() for name, each in model.state_dict().items()}, assign=True)
    model[0].weight.requires_grad_()
    model.append(nn.Linear(24, 24).cuda())
    return job.losses, model(inputs(4, 24)), model


@case
def a_model_that_was_not_given_stays():
    other = nn.Linear(512, 512).cuda()
    step = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    job = Job(net())
    offload(job.model)
    for _ in range(STEPS):
        job.step()
        other(torch.ones(4, 512).cuda()).sum().backward()
        step.step()
    if MANAGED:
        assert (
            sum(resident_bytes(kind) + offloaded_bytes(kind) for kind in managed_stats()["classes"]) < 1 << 20
        )
    return other, step, job.result()


@case
def a_frozen_parameter_is_trained_later():
    job = Job(net())
    job.model[0].weight.requires_grad_(False)
    offload(job.model, optimizer=job.optimizer)
    job.step()
    job.model[0].weight.requires_grad_()
    for _ in range(STEPS):
        job.step()
    return job.result()


@case
def what_is_kept_stays():
    job = Job(nn.Sequential(nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)))
    first, second, third = job.model
    other = torch.optim.SGD(third.parameters(), lr=0.01, momentum=0.9)
    if MANAGED:
        spillway.memory.keep_on_device(first, other)  # before the budget
    offload(job.model, optimizer=[job.optimizer, other])
    job.step()
    if MANAGED:
        spillway.memory.keep_on_device(second.weight)
    for _ in range(STEPS):
        job.step()
        job.backward()
        other.step()
    if MANAGED:
        glue().offload_model_state()
        kept = [first.weight, second.weight]
        kept += [each.grad for each in kept]
        kept += [job.optimizer.state[each]["exp_avg"] for each in kept[:2]]
        kept += [each["momentum_buffer"] for each in other.state.values()]
        left = [third.weight, third.weight.grad, job.optimizer.state[third.weight]["exp_avg"]]
        mapped = {
            range(each["address"], each["address"] + each["total_size"])
            for each in torch.cuda.memory_snapshot()
        }
        on_device = [any(each.untyped_storage().data_ptr() in one for one in mapped) for each in kept + left]
        assert on_device == [True] * len(kept) + [False] * 3, on_device
    return other, job.result()


@case
def a_parameter_is_kept_before_the_budget():
    job = Job(net())
    if MANAGED:
        spillway.memory.keep_on_device(job.model[0].weight)
    offload(job.model)
    for _ in range(STEPS):
        job.step()
    if MANAGED:
        glue().offload_model_state()
        assert resident_bytes() == job.model[0].weight.nbytes
        assert resident_bytes("gradients") == resident_bytes("optimizer_states") == 0
    return job.result()


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.01):
        super().__init__(parameters, {"lr": lr})
        self.seen = []

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            self.seen.append(len(group["params"]))
            for each in group["params"]:
                average = self.state[each].setdefault("average", torch.zeros_like(each))
                each.add_(average.lerp(each.grad, 0.1).sign_(), alpha=-group["lr"])
                average.lerp_(each.grad, 0.01)


@case
def an_optimizer_of_the_users_own_steps_in_slices():
    if MANAGED:
        assert spillway.memory.step_in_slices(Lion) is Lion
    job = Job(nn.Sequential(*(nn.Linear(96, 96) for _ in range(3))), optimizer=Lion)
    offload(job.model)
    for _ in range(STEPS):
        job.optimizer.zero_grad()
        loss = job.model(inputs(4, 96)).square().mean()
        loss.backward()
        job.losses.append(loss.item())
        job.optimizer.step()
    assert (len(job.optimizer.seen) > STEPS) == MANAGED
    assert [len(group["params"]) for group in job.optimizer.param_groups] == [6]
    return job.result()


@case
def lbfgs_steps_as_a_whole():
    job = Job(net(), optimizer=torch.optim.LBFGS, lr=0.1, max_iter=3)
    offload(job.model, optimizer=job.optimizer)

    def closure():
        job.backward()
        return torch.tensor(job.losses[-1])

    for _ in range(STEPS):
        job.optimizer.step(closure)
    if MANAGED:
        assert "all parameters" in managed_stats()["whole_steps"]["torch.optim.lbfgs.LBFGS"]
    return job.result()


@case
def two_optimizers_have_the_same_parameters():
    job = Job(net())
    other = torch.optim.SGD(job.model.parameters(), lr=0.001, momentum=0.9)
    offload(job.model, optimizer=[job.optimizer, other])
    for _ in range(STEPS):
        job.step()
        other.step()
    return other, job.result()


@case
def optimizers_step_inside_the_backward_pass():
    model = net().cuda()
    optimizers = {each: torch.optim.AdamW([each], lr=0.01) for each in model.parameters()}
    offload(model, optimizer=optimizers.values())
    step_as_gradients_come(optimizers)
    return train(model), model, list(optimizers.values())


@case
def loaded_states_have_another_shape():
    job = Job(net(), foreach=False)
    offload(job.model, optimizer=job.optimizer)
    job.step()
    good, bad = job.optimizer.state_dict(), job.optimizer.state_dict()
    bad["state"] = {number: dict(states) for number, states in bad["state"].items()}
    bad["state"][2]["exp_avg"] = torch.ones(24, 23, device="cuda")
    job.optimizer.load_state_dict(bad)
    job.backward()
    try:
        job.optimizer.step()
    except RuntimeError as error:
        text = str(error)
    groups = [len(group["params"]) for group in job.optimizer.param_groups]
    failed = digest(job.model, job.optimizer)
    job.optimizer.load_state_dict(good)
    job.step()
    return text, groups, failed, job.result()


@case
def a_budget_is_given_again_and_ends_with_its_model():
    model = net().cuda()
    held = []
    for budget in ("1GiB", "2GiB"):
        if MANAGED:
            spillway.offload(model, budget=budget)
            held.append(glue().job_budget(0) >> 30)
    other = offload(net().cuda())
    for each in itertools.chain(model.parameters(), other.parameters()):
        each.requires_grad_(False)
    result = digest(model(inputs(4, 24)), other(inputs(4, 24)))
    del other
    if MANAGED:
        held.append(glue().job_budget(0) >> 30)
        del model
        held.append(glue().job_budget(0))
        assert held == [1, 2, 2, 0], held
    return result


@case
def model_state_larger_than_the_budget():
    """The last case, because it ends chaos. The optimizer has states before it is given."""
    gc.collect()  # what other cases have left
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(16))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    loaded = [torch.full_like(each, 0.5) for each in model.parameters()]
    states = {
        number: {"step": torch.tensor(3.0), "exp_avg": each, "exp_avg_sq": each.clone()}
        for number, each in enumerate(loaded)
    }
    optimizer.load_state_dict(optimizer.state_dict() | {"state": states})
    del loaded, states
    if MANAGED:
        before = managed_stats()["classes"]["optimizer_states"]["storages"]
        spillway.offload(model, budget="112MiB", optimizer=optimizer)
        glue().set_chaos(0, 0)
        assert managed_stats()["classes"]["optimizer_states"]["storages"] - before == 64
    losses = []
    for number in range(3):
        if number == 1:  # the first step brings the model into its budget
            torch.cuda.reset_peak_memory_stats()
        optimizer.zero_grad()
        loss = model(torch.randn(4, WIDTH).cuda()).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        losses.append(loss.item())
    if MANAGED:
        assert torch.cuda.max_memory_reserved() <= 112 << 20
    return losses, model, optimizer


main()
