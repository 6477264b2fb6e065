# SPDX-License-Identifier: Apache-2.0
"""What the cases read and compare."""

import contextlib
import ctypes
import os

import spillway
import torch


def unordered():
    """The order checker's reports so far; none where there is no emulated GPU."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "spillway_emulator_race"):
        return []
    library.spillway_emulator_race.restype = ctypes.c_char_p
    library.spillway_emulator_race.argtypes = [ctypes.c_size_t]
    reports = []
    while (text := library.spillway_emulator_race(len(reports))) is not None:
        reports.append(text.decode())
    return reports


def residency():
    """Bytes copied since the beginning and on the host now."""
    device = spillway.stats()["devices"].get(0)
    names = ("stashed_bytes", "fetched_bytes", "on_host_bytes", "stashes", "fetches")
    return device["residency"] if device else dict.fromkeys(names, 0)


def plenty():
    """A budget that every case meets: the whole device. The workspaces of the cases before are on it too."""
    return torch.cuda.mem_get_info()[1]


def last(tag=""):
    """The last step of a tag."""
    return spillway.stats()["tags"][tag]["last"]


class Copied:
    """Counts the bytes copied between entry and exit."""

    def __enter__(self):
        self._before = residency()
        return self

    def __exit__(self, *_):
        now = residency()
        keys = ("stashed_bytes", "fetched_bytes", "stashes", "fetches")
        self.out, self.back, self.stashes, self.fetches = (now[k] - self._before[k] for k in keys)


EMULATED = os.environ.get("SPILLWAY_EMULATE") == "1"
#: Bytes at most that kernels of a real GPU take for themselves.
SCRATCH = 0 if EMULATED else 1 << 20


def same_bits(left, right):
    """Equal values, NaN included, of the same kind and shape."""
    if left is None or right is None:
        return left is right
    return (
        left.dtype == right.dtype and left.shape == right.shape and torch.equal(_bytes(left), _bytes(right))
    )


def same(left, right):
    """Equal lists of tensors, wherever they lie."""
    left, right = list(left), list(right)
    return len(left) == len(right) and all(same_bits(a, b) for a, b in zip(left, right, strict=True))


def gradients_of_gradients(net, x):
    """The input's and the parameters', of the squares of what reaches the input."""
    (first,) = torch.autograd.grad(net(x).square().sum(), [x], create_graph=True)
    first.square().sum().backward()
    return [x.grad, *(p.grad for p in net.parameters())]


def _bytes(tensor):
    # A copy: what has one element counts as contiguous whatever its stride, which view() then refuses.
    whole = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return whole.flatten().view(torch.uint8)


class Save(torch.autograd.Function):
    """Saves tensors as they are; `seen` gets what is fetched in the backward pass."""

    @staticmethod
    def forward(ctx, x, seen, *saved):
        ctx.save_for_backward(*saved)
        ctx.seen, ctx.count = seen, len(saved)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.seen.extend(ctx.saved_tensors)
        return (grad, None) + (None,) * ctx.count


@contextlib.contextmanager
def an_edit_is_noticed():
    """What runs inside must raise autograd's error of a tensor that has been changed in place."""
    try:
        yield
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("the edit went unnoticed")


def save(seen, *tensors):
    """A graph of one node that saves `tensors`; its backward() fills `seen`."""
    return Save.apply(torch.ones(1, device="cuda", requires_grad=True), seen, *tensors)
