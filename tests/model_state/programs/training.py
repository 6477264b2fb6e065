# SPDX-License-Identifier: Apache-2.0
"""What training loops do with parameters and gradients: read, write, hook, fail."""

import contextlib

import torch
from cases import case, digest, main
from jobs import STEPS, Job, inputs, net, step_as_gradients_come, train
from torch import nn


@case
def gradients_read_by_hand():
    job = Job()
    norms = []
    for _ in range(STEPS):
        job.backward()
        norms.append([each.grad.norm().item() for each in job.model.parameters()])
        norms.append([each.grad.cpu().numpy().sum().item() for each in job.model.parameters()])
        norms.append(job.model[0].weight.grad[3, 4].item())
        job.optimizer.step()
    return norms, job.result()


@case
def gradients_written_by_hand():
    job = Job()
    for _ in range(STEPS):
        job.backward()
        for each in job.model.parameters():
            each.grad.mul_(0.5)
            each.grad.data.add_(0.25)
        job.model[0].weight.grad[2:5] = 0
        job.model[2].weight.grad = job.model[2].weight.grad * 3
        job.model[2].bias.grad = None
        job.optimizer.step()
    return job.result()


@case
def parameters_changed_by_hand():
    job = Job()
    for _ in range(STEPS):
        job.backward()
        with torch.no_grad():
            for each in job.model.parameters():
                each.sub_(0.1 * each.grad)
                each.clamp_(-1, 1)
            job.model[0].weight[0] = 1
            job.model[0].weight.copy_(job.model[2].weight.T)
            nn.init.orthogonal_(job.model[2].weight)
    return job.result()


@case
def vectors_of_all_parameters():
    job = Job()
    job.step()
    vector = nn.utils.parameters_to_vector(job.model.parameters())
    nn.utils.vector_to_parameters(vector * 2, job.model.parameters())
    job.step()
    return vector, job.result()


@case
def gradients_set_to_zero():
    job = Job()
    for _ in range(STEPS):
        job.step(set_to_none=False)
    job.model.zero_grad(set_to_none=False)
    return job.result()


@case
def hooks():
    job, seen = Job(), []
    weight = job.model[0].weight
    weight.register_hook(lambda gradient: gradient * 2)
    weight.register_hook(lambda gradient: seen.append(gradient.norm().item()))
    weight.register_post_accumulate_grad_hook(
        lambda parameter: seen.append(parameter.grad.add_(1).sum().item())
    )
    job.model[2].register_forward_hook(lambda module, given, out: seen.append(module.weight.sum().item()))
    job.model[2].register_full_backward_hook(lambda module, given, out: seen.append(out[0].sum().item()))
    for _ in range(STEPS):
        job.step()
    return seen, job.result()


@case
def optimizers_in_backward():
    model = net().cuda()
    optimizers = {each: torch.optim.AdamW([each], lr=0.01) for each in model.parameters()}
    step_as_gradients_come(optimizers)
    return train(model), model, list(optimizers.values())


@case
def an_exception_in_the_step():
    job, seen = Job(foreach=False), []
    for number in range(4):
        job.backward()
        broken = job.model[2].weight
        gradient = broken.grad
        if number == 1:
            broken.grad = None
            broken.grad = torch.sparse_coo_tensor(
                torch.zeros(2, 1, dtype=torch.long), torch.ones(1), (24, 24)
            ).cuda()
        try:
            job.optimizer.step()
        except RuntimeError as error:
            seen.append(str(error))
            seen.append(len(job.optimizer.param_groups))
            seen.append(len(job.optimizer.param_groups[0]["params"]))
            seen.append(digest(job.optimizer))
            broken.grad = gradient
    assert len(seen) == 4, seen
    return seen, job.result()


class Breaks(torch.autograd.Function):
    broken = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if Breaks.broken:
            raise ValueError("broken")
        return gradient


@case
def an_exception_in_backward():
    class Breaking(nn.Module):
        def forward(self, x):
            return Breaks.apply(x)

    job = Job(nn.Sequential(nn.Linear(24, 24), Breaking(), nn.Linear(24, 24)))
    for number in range(4):
        Breaks.broken = number == 2
        with contextlib.suppress(ValueError):
            job.backward()
        job.optimizer.step()
    return job.result()


@case
def an_exception_in_an_operator():
    job = Job()
    job.step()
    for wrong in (lambda: job.model(inputs(4, 23)), lambda: job.model[0].weight @ torch.ones(23, 2).cuda()):
        try:
            wrong()
        except RuntimeError:
            pass
        else:
            raise AssertionError("no error")
    job.step()
    return job.result()


@case
def averaged_weights_and_swa():
    job = Job()
    averaged = torch.optim.swa_utils.AveragedModel(job.model)
    scheduler = torch.optim.swa_utils.SWALR(job.optimizer, swa_lr=0.05)
    for _ in range(STEPS):
        job.step()
        averaged.update_parameters(job.model)
        scheduler.step()
    torch.optim.swa_utils.update_bn([inputs(4, 24) for _ in range(2)], averaged)
    return averaged, job.result()


@case
def clipping_by_value_and_norms_of_groups():
    job = Job()
    for _ in range(STEPS):
        job.backward()
        nn.utils.clip_grad_value_(job.model.parameters(), 0.01)
        gradients = [each.grad for each in job.model.parameters()]
        norm = nn.utils.get_total_norm(gradients, norm_type=1.0)
        nn.utils.clip_grads_with_norm_(job.model.parameters(), 0.1, norm)
        job.losses.append(norm.item())
        job.optimizer.step()
    return job.result()


@case
def sharpness_aware_steps():
    job = Job()
    for _ in range(STEPS):
        job.backward()
        before = [each.detach().clone() for each in job.model.parameters()]
        with torch.no_grad():
            torch._foreach_add_(
                list(job.model.parameters()), [each.grad for each in job.model.parameters()], alpha=0.05
            )
        job.backward()
        with torch.no_grad():
            torch._foreach_copy_(list(job.model.parameters()), before)
        job.optimizer.step()
    return job.result()


class OwnSGD(torch.optim.Optimizer):
    """A user's optimizer, which counts in its groups and looks over all parameters."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr, "step": 0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["step"] += 1
            norm = torch.stack([each.grad.norm() for each in group["params"]]).norm()
            for each in group["params"]:
                state = self.state[each]
                if not state:
                    state["average"] = torch.zeros_like(each)
                    state["rows"] = [torch.zeros_like(each), {"inner": torch.ones_like(each)}]
                state["average"].lerp_(each.grad / norm, 0.5)
                state["rows"][0] += state["average"] * state["rows"][1]["inner"]
                each.add_(state["rows"][0], alpha=-group["lr"] / group["step"])


@case
def an_optimizer_of_the_users_own():
    job = Job(optimizer=OwnSGD)
    for _ in range(STEPS):
        job.step()
    return job.result()


@case
def a_subclass_of_an_optimizer():
    class Own(torch.optim.AdamW):
        def step(self, closure=None):
            with torch.no_grad():
                for group in self.param_groups:
                    group["count"] = group.get("count", 0) + 1
                    for each in group["params"]:
                        each.grad.mul_(0.5)
            return super().step(closure)

    job = Job(optimizer=Own)
    for _ in range(STEPS):
        job.step()
    return job.result()


main()
