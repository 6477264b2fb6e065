# SPDX-License-Identifier: Apache-2.0
"""Programs that use what an optimizer's step has written right after the step, in unusual ways."""

import copy
import io

import torch
from cases import case, main
from jobs import STEPS, Job


def saved(value):
    into = io.BytesIO()
    torch.save(value, into)
    return into.getvalue()


def stepped(optimizer=torch.optim.AdamW, **options):
    """A job whose states exist, so that the kernels of its later steps may overlap."""
    job = Job(optimizer=optimizer, **options)
    job.step()
    return job


def states(job, name):
    return [state[name] for state in job.optimizer.state.values()]


@case
def small_states_are_saved():
    results = []
    for job in (stepped(fused=True), stepped(torch.optim.ASGD, t0=2.0)):
        for _ in range(STEPS):
            job.step()
            results.append(saved(job.optimizer.state_dict()))
        results.append(job.result())
    return results


@case
def small_states_are_read_by_their_storages():
    job = stepped(fused=True)
    results = []
    for _ in range(STEPS):
        job.step()
        results.append([each.untyped_storage().cpu().tolist() for each in states(job, "step")])
        job.step()
        results.append([torch.empty(0, device="cuda").set_(each).item() for each in states(job, "step")])
        job.step()
        results.append([copy.deepcopy(each).item() for each in states(job, "step")])
    return results, job.result()


@case
def small_states_have_aliases():
    job = stepped(fused=True)
    aliases = [each.view(1) for each in states(job, "step")]
    results = []
    for _ in range(STEPS):
        job.step()
        results.append([each.tolist() for each in aliases])
    return results, job.result()


@case
def small_states_end_right_after_the_step():
    job = stepped(fused=True)
    job.step()
    job.optimizer.state.clear()
    others = [torch.full((), 7.0, device="cuda") for _ in range(64)]
    job.step()
    return others, job.result()


@case
def gradients_of_one_element_change_after_the_step():
    job = stepped()
    small = torch.ones((), device="cuda")
    for _ in range(STEPS):
        for each in job.model.parameters():
            each.grad = small.expand(each.shape)
        job.optimizer.step()
        small.mul_(3)
    return job.result()


@case
def options_change_after_the_step():
    betas = torch.tensor(0.9, device="cuda"), torch.tensor(0.99, device="cuda")
    job = stepped(torch.optim.Adam, betas=betas, capturable=True, foreach=False)
    for _ in range(STEPS):
        job.step()
        betas[0].mul_(0.5)
    return job.result()


@case
def states_are_created_although_there_are_others():
    results = []
    for own in ({"momentum_buffer": None}, {"name": "of the program"}):
        job = Job(optimizer=torch.optim.SGD, momentum=0.9)
        for each in job.model.parameters():
            job.optimizer.state[each].update(own)
        for _ in range(STEPS):
            job.step()
            buffers = states(job, "momentum_buffer")
            results.append([buffer + 1 for buffer in buffers])
        results.append(job.result())
    return results


@case
def a_capture_reads_a_small_state():
    job = stepped(capturable=True)
    count = states(job, "step")[0]
    read = torch.zeros((), device="cuda")
    job.step()
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin()
        read.copy_(count)
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    graph.replay()
    return read, job.result()


@case
def a_step_that_raises_leaves_the_stream():
    job = stepped()
    before = torch.cuda.current_stream()
    job.backward()
    last = list(job.model.parameters())[-1]
    states_of_last = job.optimizer.state[last]
    exp_avg = states_of_last.pop("exp_avg")
    try:
        job.optimizer.step()
    except KeyError as error:
        same = torch.cuda.current_stream() == before, error.args
    states_of_last["exp_avg"] = exp_avg
    after = torch.cuda.current_stream() == before
    total = torch.stack([each.sum() for each in job.model.parameters()]).sum()
    return after, bool(total == total), same[1]


main()
