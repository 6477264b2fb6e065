# SPDX-License-Identifier: Apache-2.0
"""What training loops do with parameters and gradients: read, write, hook, save, share, fail."""

import contextlib
import copy
import ctypes
import gc
import hashlib
import io
import os
import pathlib
import pickle
import tempfile
import threading

import torch
from cases import case, digest, main
from torch import nn
from torch.utils import checkpoint

STEPS = 3


def inputs(*shape):
    return torch.randn(*shape).cuda()


def net():
    return nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24), nn.BatchNorm1d(24))


class Job:
    def __init__(self, model=None, optimizer=torch.optim.AdamW, **options):
        self.model = (model or net()).cuda()
        self.optimizer = optimizer(self.model.parameters(), **({"lr": 0.01} | options))
        self.losses = []

    def backward(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)
        loss = self.model(inputs(4, 24)).square().mean()
        loss.backward()
        self.losses.append(loss.item())

    def step(self, **options):
        self.backward(**options)
        self.optimizer.step()

    def result(self):
        return self.losses, self.model, self.optimizer


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
    weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad.add_(1).sum().item()))
    job.model[2].register_forward_hook(lambda module, given, out: seen.append(module.weight.sum().item()))
    job.model[2].register_full_backward_hook(lambda module, given, out: seen.append(out[0].sum().item()))
    for _ in range(STEPS):
        job.step()
    return seen, job.result()


@case
def optimizers_in_backward():
    model = net().cuda()
    optimizers = {each: torch.optim.AdamW([each], lr=0.01) for each in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(step)
    losses = []
    for _ in range(STEPS):
        loss = model(inputs(4, 24)).square().mean()
        loss.backward()
        losses.append(loss.item())
    return losses, model, list(optimizers.values())


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
def copies():
    job = Job()
    job.step()
    model, optimizer = copy.deepcopy((job.model, job.optimizer))
    other = Job()
    other.model, other.optimizer = model, optimizer
    job.step()
    other.step()
    shallow = copy.copy(job.model)
    return job.result(), other.result(), shallow, copy.deepcopy(job.model[0].weight.grad)


@case
def an_exception_in_the_step():
    job, seen = Job(foreach=False), []
    for number in range(4):
        job.backward()
        broken = job.model[2].weight
        gradient = broken.grad
        if number == 1:
            broken.grad = None
            broken.grad = torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.long), torch.ones(1), (24, 24)).cuda()
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


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@case
def files():
    job = Job(optimizer=torch.optim.Adam, amsgrad=True)
    written = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "saved.pt")
        for zipped in (True, False):
            job.step()
            state = {"model": job.model.state_dict(), "optimizer": job.optimizer.state_dict()}
            torch.save(state, path, _use_new_zipfile_serialization=zipped)
            if zipped:  # the old format has addresses of objects
                written.append(hashlib.sha256(path.read_bytes()).hexdigest())
            for where in ("cuda", "cpu", None):
                loaded = torch.load(path, map_location=where)
                written.append(digest(loaded))
            written.append([str(each.device) for each in loaded["model"].values()])
    return written, saved(job.model), saved([each.grad for each in job.model.parameters()]), job.result()


@case
def resumption():
    job = Job()
    job.step()
    job.step()
    file = io.BytesIO(saved({"model": job.model.state_dict(), "optimizer": job.optimizer.state_dict()}))
    other = Job()
    loaded = torch.load(file)
    other.model.load_state_dict(loaded["model"])
    other.optimizer.load_state_dict(loaded["optimizer"])
    random = torch.get_rng_state()
    job.step()
    torch.set_rng_state(random)
    other.step()
    assert digest(job.model, job.optimizer) == digest(other.model, other.optimizer)
    return job.result(), other.result()


@case
def states_of_optimizers_loaded():
    job = Job()
    for _ in range(STEPS):
        job.step()
        job.optimizer.load_state_dict(job.optimizer.state_dict())
        job.model.load_state_dict(copy.deepcopy(job.model.state_dict()))
    job.optimizer.load_state_dict(copy.deepcopy(job.optimizer.state_dict()))
    job.step()
    return job.result()


@case
def pickles():
    job = Job()
    job.step()
    model = pickle.loads(pickle.dumps(job.model))
    optimizer = pickle.loads(pickle.dumps(job.optimizer))
    return model, optimizer, model(inputs(4, 24)), job.result()


@case
def numpy_and_lists():
    job = Job()
    job.step()
    weight = job.model[0].weight.detach()
    seen = weight.cpu().numpy().tobytes(), weight[:2].tolist(), str(weight), weight.untyped_storage().tolist()[:9]
    job.model.cpu()
    job.model.cuda()
    return seen, job.model


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
    shared = net().cuda().eval()
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
    shared = net().cuda().eval()
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
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(24, 24), nn.Dropout(0.1), nn.ReLU()) for _ in range(3))
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
def exchange_with_dlpack():
    job = Job()
    job.step()
    weight = job.model[0].weight.detach()
    other = torch.from_dlpack(weight)
    old = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(job.model[2].weight.detach()))
    assert other.data_ptr() == weight.data_ptr()
    for _ in range(STEPS):
        job.step()
        other.mul_(0.5)
        old.add_(1)
    assert other.data_ptr() == weight.data_ptr()
    return other, old, job.result()


@case
def exchange_with_the_array_interface():
    class Array:
        """What another library makes of the interface."""

        def __init__(self, tensor):
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__

    job = Job()
    job.step()
    weight = job.model[0].weight.detach()
    other = torch.as_tensor(Array(weight), device="cuda")
    for _ in range(STEPS):
        job.step()
        other.mul_(0.5)
    return other, job.result()


@case
def addresses_within_a_step():
    """A kernel that gets addresses."""
    job = Job()
    runtime = ctypes.CDLL(None)
    device_to_device = 3
    for _ in range(STEPS):
        job.backward()
        source, target = job.model[0].weight, job.model[2].weight
        addresses = ctypes.c_void_p(target.data_ptr()), ctypes.c_void_p(source.data_ptr())
        job.losses.append((source + target).sum().item())  # operators in between
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        size = ctypes.c_size_t(source.nbytes)
        assert runtime.cudaMemcpyAsync(*addresses, size, device_to_device, stream) == 0
        job.optimizer.step()
    return job.result()


@case
def identities():
    model = net().cuda()
    pointers = {each.untyped_storage().data_ptr() for each in model.parameters()}
    assert len(pointers) == len(list(model.parameters()))
    weight = model[0].weight
    assert weight.untyped_storage().nbytes() == weight.nbytes
    assert weight.untyped_storage()._cdata == weight.detach().untyped_storage()._cdata
    model(inputs(4, 24))
    return model


@case
def shared_memory():
    job = Job()
    job.step()
    job.model.share_memory()
    job.model[0].weight.share_memory_()
    assert job.model[0].weight.is_shared()
    job.step()
    return job.result()


@case
def resized_storages():
    job = Job()
    job.step()
    weight = job.model[0].weight.data
    kept = weight.clone()
    storage = weight.untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    storage.resize_(size)
    weight.copy_(kept)
    grown = torch.zeros(24, 24, device="cuda")
    job.model.register_buffer("grown", grown)
    job.step()
    job.model.grown.resize_(48, 24).fill_(3)
    job.step()
    return job.result()


@case
def tensors_set_to_a_storage():
    job = Job()
    job.step()
    weight = job.model[0].weight.data
    alias = torch.empty(0, device="cuda").set_(weight.untyped_storage(), 0, (24, 24))
    other = torch.tensor([], device="cuda").set_(weight)
    job.step()
    alias.add_(1)
    other.mul_(2)
    job.step()
    return alias, other, job.result()


@case
def views_made_before_the_tensor_was_managed():
    flat = torch.randn(24, 24).cuda()
    view, alias = flat[3:9], flat.detach()
    job = Job()
    job.model[0].weight = nn.Parameter(flat)
    job.optimizer = torch.optim.AdamW(job.model.parameters(), lr=0.01)
    for _ in range(STEPS):
        job.step()
        view.add_(1)
        alias.mul_(0.5)
    return view, alias, job.result()


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


@case
def models_that_end():
    for _ in range(3):
        job = Job()
        job.step()
        result = digest(job.result())
        del job
        gc.collect()
        torch.cuda.empty_cache()
    return result


@case
def a_forked_child():
    job = Job()
    job.step()
    if (child := os.fork()) == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    job.step()
    return job.result()


@case
def compiled_by_the_eager_backend():
    job = Job()
    job.model = torch.compile(job.model, backend="eager")
    for _ in range(STEPS):
        job.step()
    return job.losses, job.model._orig_mod, job.optimizer


@case
def compiled_by_aot_eager():
    job = Job()
    job.model = torch.compile(job.model, backend="aot_eager")
    for _ in range(STEPS):
        job.step()
    return job.losses, job.model._orig_mod, job.optimizer


@case
def compiled_optimizer():
    job = Job()
    step = torch.compile(job.optimizer.step, backend="eager")
    for _ in range(STEPS):
        job.backward()
        step()
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
            torch._foreach_add_(list(job.model.parameters()), [each.grad for each in job.model.parameters()], alpha=0.05)
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
