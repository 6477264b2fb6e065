# SPDX-License-Identifier: Apache-2.0
"""The table of all operators of the emulated GPU: with --write, docs/emulation-operators.md is remade.

It needs the emulated GPU in its process, as the tests here do.
"""

import ctypes
import pathlib
import sys
import textwrap

import spillway
import torch

LIBRARY = pathlib.Path(spillway.__path__[0]) / "lib" / "libspillway_emulator_operators.so"
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "emulation-operators.md"
LAYOUTS = {
    "CUDA": ("", "Strided tensors"),
    "SparseCUDA": (" (sparse)", "Sparse tensors (coordinates)"),
    "SparseCsrCUDA": (" (compressed sparse)", "Sparse tensors (CSR, CSC, BSR, BSC)"),
    "NestedTensorCUDA": (
        " (nested)",
        "Nested tensors (strided layout; the jagged one is made of strided tensors)",
    ),
}
KINDS = {
    "emulated": "The operator's CPU kernel runs on the same bytes.",
    "body": "Written here in terms of CPU operators: PyTorch has it on CUDA only, or other results there.",
    "native": "PyTorch's own CUDA code, which launches no kernel.",
    "refused": "Stops with its name.",
}
# The beginning of a refused operator's name, and what to do instead.
INSTEAD = {
    "_cslt_": "use dense weights",
    "_sparse_semi_structured_": "use dense weights",
    "_to_sparse_semi_structured": "use dense weights",
    "_cudnn_attention_": "scaled_dot_product_attention has cuDNN's attention",
    "_cudnn_": "leave torch.backends.cudnn off, as it is here: PyTorch then uses kernels of its own",
    "cudnn_batch_norm": "the form without out=",
    "miopen_": "AMD's library: PyTorch does not choose it on CUDA",
    "_triton_": "scaled_dot_product_attention",
    "_flash_attention_forward.quantized": "bfloat16 attention",
    "_scaled_dot_product_flash_attention.quantized": "bfloat16 attention",
    "_scaled_grouped_mm_v2": "_scaled_grouped_mm with scales by row",
    "_weight_int4pack_mm": "dequantise the weights, or run this part on the CPU",
    "_convert_weight_to_int4pack": "dequantise the weights, or run this part on the CPU",
    "_mixed_dtypes_linear": "dequantise the weights, or run this part on the CPU",
    "_fill_mem_eff_dropout_mask_": "a test helper of PyTorch's; dropout itself runs",
    "_spsolve": "make it dense: torch.linalg.solve",
    "bmm.out": "make it dense, or multiply one matrix at a time",
    "baddbmm.out": "make it dense, or multiply one matrix at a time",
}


def kinds(key):
    """Each kind's operators ("add.Tensor"), sorted, for one kind of tensor."""
    library = ctypes.CDLL(str(LIBRARY))
    library.spillway_operators_kind.restype = ctypes.c_char_p
    found = {kind: [] for kind in KINDS}
    for name in sorted(torch._C._dispatch_get_registrations_for_dispatch_key(key)):
        kind = library.spillway_operators_kind((name + LAYOUTS[key][0]).encode())
        if kind is not None and name.startswith("aten::"):
            found[kind.decode()].append(name.removeprefix("aten::"))
    return found


def instead_of(name):
    return next(what for start, what in INSTEAD.items() if name.startswith(start))


def page():
    lines = [
        "# The operators of the emulated GPU",
        "",
        f"Of PyTorch {torch.__version__.partition('+')[0]}. Written by "
        "`tests/emulator_operators/operator_table.py --write`; a test keeps it true.",
        "",
        "| tensors | " + " | ".join(KINDS) + " |",
        "|---|" + "---|" * len(KINDS),
    ]
    tables = {key: kinds(key) for key in LAYOUTS}
    for key, (_, title) in LAYOUTS.items():
        lines.append(f"| {title} | " + " | ".join(str(len(tables[key][kind])) for kind in KINDS) + " |")
    lines += ["", *(f"* **{kind}**: {what}" for kind, what in KINDS.items())]
    lines += ["", "Operators without a CUDA kernel of their own are made of these."]
    for key, (_, title) in LAYOUTS.items():
        lines += ["", f"## {title}"]
        for kind in ("refused", "body", "native", "emulated"):
            names = tables[key][kind]
            if not names:
                continue
            lines += ["", f"### {kind.capitalize()}", ""]
            if kind == "refused":
                lines += ["| operator | instead |", "|---|---|"]
                lines += [f"| `{name}` | {instead_of(name)} |" for name in names]
            else:
                lines += textwrap.wrap(", ".join(f"`{name}`" for name in names), 118, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: operator_table.py --write")
    PAGE.write_text(page())
