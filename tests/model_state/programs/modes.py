# SPDX-License-Identifier: Apache-2.0
"""Ways to run a step: streams, threads, checkpoints, tools of PyTorch."""

import threading

import torch
from cases import case, main
from jobs import STEPS, Job, inputs, net
from torch import nn
from torch.utils import checkpoint


@case
def anomaly_mode():
    job = Job()
    with torch.autograd.set_detect_anomaly(True):
        for _ in range(STEPS):
            job.step()
    return job.result()


@case
def a_profiler():
    job = Job()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True) as profiler:
        for _ in range(STEPS):
            job.step()
    assert profiler.key_averages()
    return job.result()


@case
def two_streams_with_events():
    first, second = Job(), Job()
    stream, done = torch.cuda.Stream(), torch.cuda.Event()
    batches = [inputs(4, 24) for _ in range(STEPS)]
    stream.wait_stream(torch.cuda.current_stream())
    losses = []
    for batch in batches:
        loss = first.model(batch).square().mean()
        first.optimizer.zero_grad()
        loss.backward()
        first.optimizer.step()
        done.record()
        with torch.cuda.stream(stream):
            stream.wait_event(done)
            with torch.no_grad():
                wanted = first.model[0](batch)  # the parameters of the other stream's model
            loss = (second.model(batch) - wanted).square().mean()
            second.optimizer.zero_grad()
            loss.backward()
            second.optimizer.step()
            losses.append(loss)
        torch.cuda.current_stream().wait_stream(stream)
    return [each.item() for each in losses], first.result(), second.result()


@case
def a_forward_pass_on_a_side_stream():
    job, stream = Job(), torch.cuda.Stream()
    for _ in range(STEPS):
        batch = inputs(4, 24)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = job.model(batch).square().mean()
        torch.cuda.current_stream().wait_stream(stream)
        job.optimizer.zero_grad()
        loss.backward()
        job.optimizer.step()
        job.losses.append(loss.item())
    return job.result()


@case
def several_threads():
    jobs = [Job(net()) for _ in range(3)]
    batches = [inputs(4, 24) for _ in range(STEPS)]
    # A shared model is only read.
    shared = nn.Linear(24, 24).cuda()
    torch.cuda.synchronize()
    results = [None] * len(jobs)

    def work(index):
        job = jobs[index]
        for batch in batches:
            job.optimizer.zero_grad()
            with torch.no_grad():
                wanted = shared(batch)
            loss = (job.model(batch) - wanted).square().mean()
            loss.backward()
            job.optimizer.step()
            job.losses.append(loss.item())
        results[index] = job.result()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(jobs))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return results, shared


@case
def threads_with_streams():
    jobs = [Job(net()) for _ in range(3)]
    batches = [inputs(4, 24) for _ in range(STEPS)]
    shared = nn.Linear(24, 24).cuda()
    torch.cuda.synchronize()

    def work(job):
        with torch.cuda.stream(torch.cuda.Stream()):
            for batch in batches:
                job.optimizer.zero_grad()
                with torch.no_grad():
                    wanted = shared(batch)
                loss = (job.model(batch) - wanted).square().mean()
                loss.backward()
                job.optimizer.step()
                job.losses.append(loss.item())

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    torch.cuda.synchronize()
    return [job.result() for job in jobs], shared


@case
def checkpointed_blocks():
    class Checkpointed(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(24, 24), nn.Dropout(0.1), nn.ReLU()) for _ in range(3)
            )
            self.reentrant = reentrant

        def forward(self, x):
            x = x.requires_grad_()
            for block in self.blocks:
                x = checkpoint.checkpoint(block, x, use_reentrant=self.reentrant)
            return x

    results = []
    for reentrant in (False, True):
        job = Job(Checkpointed(reentrant))
        for _ in range(STEPS):
            job.step()
        results.append(job.result())
    return results


@case
def saved_tensors_on_the_cpu():
    job = Job()
    for _ in range(STEPS):
        with torch.autograd.graph.save_on_cpu():
            job.step()
    return job.result()


@case
def data_parallel_on_one_device():
    job = Job(nn.DataParallel(net()))
    for _ in range(STEPS):
        job.step()
    return job.result()


@case
def graphs_that_outlive_the_step():
    """The graph has saved the parameters' old values where none was changed in place."""
    job = Job()
    kept = []
    for _ in range(STEPS):
        kept.append(job.model(inputs(4, 24)).square().mean())
    for loss in kept:
        loss.backward()
    job.optimizer.step()
    return [each.item() for each in kept], job.result()


def compiled_by(backend):
    job = Job()
    job.model = torch.compile(job.model, backend=backend)
    for _ in range(STEPS):
        job.step()
    return job.losses, job.model._orig_mod, job.optimizer


@case
def compiled_by_the_eager_backend():
    return compiled_by("eager")


@case
def compiled_by_aot_eager():
    return compiled_by("aot_eager")


@case
def compiled_optimizer():
    job = Job()
    step = torch.compile(job.optimizer.step, backend="eager")
    for _ in range(STEPS):
        job.backward()
        step()
    return job.result()


main()
