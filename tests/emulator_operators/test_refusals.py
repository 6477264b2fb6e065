# SPDX-License-Identifier: Apache-2.0
"""What is not emulated stops with its name."""

import ctypes
import pathlib
import re

import pytest
import spillway
import torch

LIBRARY = pathlib.Path(spillway.__path__[0]) / "lib" / "libspillway_emulator_operators.so"


def kind(name):
    library = ctypes.CDLL(str(LIBRARY))
    library.spillway_operators_kind.restype = ctypes.c_char_p
    return library.spillway_operators_kind(name.encode())


def test_an_operator_that_is_not_emulated_states_its_name():
    with pytest.raises(NotImplementedError, match=r"aten::_cslt_compress. Run this part on the CPU"):
        torch._cslt_compress(torch.ones(2, 2, device="cuda"))


def test_every_cuda_kernel_of_pytorch_has_a_kind():
    names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    without = [name for name in names if name.startswith(("aten::", "prims::")) and kind(name) is None]
    # Newer versions put kernels in Python before some operators, and pass on what does not suit them.
    in_python = re.compile(r"^CUDA: registered at \S+\.py:", re.MULTILINE)
    assert [name for name in without if not in_python.search(torch._C._dispatch_dump(name))] == []


def test_an_unknown_operator_has_no_kind():
    assert kind("aten::no_such_operator") is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::add.Tensor", b"emulated"),
        ("aten::_fused_rms_norm_backward", b"body"),
        ("aten::as_strided", b"native"),
        ("c10d::allreduce_", b"body"),
        ("c10d::broadcast_", b"body"),
        ("c10d::barrier", b"native"),
        ("aten::cudnn_convolution", b"body"),
        ("aten::_cudnn_rnn", b"refused"),
        ("aten::mm (sparse)", b"emulated"),
        ("aten::values (compressed sparse)", b"native"),
        ("aten::_spsolve (compressed sparse)", b"refused"),
        ("aten::to_padded_tensor (nested)", b"emulated"),
    ],
)
def test_the_kind_states_who_serves_an_operator(name, expected):
    assert kind(name) == expected


def test_cudnn_is_off():
    assert not torch.backends.cudnn.enabled


def test_errors_are_those_of_the_operator():
    with pytest.raises(IndexError, match="out of range"):
        torch.nn.functional.embedding(torch.tensor([9], device="cuda"), torch.ones(3, 3, device="cuda"))
