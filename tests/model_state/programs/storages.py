# SPDX-License-Identifier: Apache-2.0
"""What programs do with the memory of their models: save, load, copy, share, pass on."""

import copy
import ctypes
import gc
import hashlib
import io
import os
import pathlib
import pickle
import tempfile

import torch
from cases import case, digest, main
from jobs import STEPS, Job, inputs, net
from torch import nn


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
    seen = (
        weight.cpu().numpy().tobytes(),
        weight[:2].tolist(),
        str(weight),
        weight.untyped_storage().tolist()[:9],
    )
    job.model.cpu()
    job.model.cuda()
    return seen, job.model


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


main()
