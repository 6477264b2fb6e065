# SPDX-License-Identifier: Apache-2.0
"""The C and C++ examples of the guides compile against the public headers."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch
from page_examples import ROOT, Block, pages

TORCH = Path(torch.__path__[0]) / "include"
CUDA = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/include"
INCLUDED = [ROOT / "include", TORCH, TORCH / "torch/csrc/api/include", CUDA]
#: What the text around an example has, by language: before it and behind it.
AROUND = {
    "c": (
        "#include <stddef.h>\n#include <stdio.h>\n",
        "void example(size_t bytes, void* stream) {\n",
    ),
    "cpp": (
        "#include <torch/torch.h>\n#include <vector>\n",
        "struct Model : torch::nn::Module { torch::Tensor forward(const torch::Tensor& input); };\n"
        "void example(const std::vector<torch::Tensor>& batches, const std::shared_ptr<Model>& model,\n"
        "             torch::optim::Optimizer& optimizer) {\n",
    ),
}
EXAMPLES = [
    pytest.param(block, id=f"{page.name}:{block.line}") for page in pages() for block in page.of(*AROUND)
]


def compiled(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """The outcome of a compilation without output. The includes of the block stay at the top."""
    lines = block.text.splitlines()
    includes = [line for line in lines if line.startswith("#include")]
    headers, function = AROUND[block.language]
    source = folder / f"example.{block.language}"
    body = "\n".join(line for line in lines if line not in includes)
    source.write_text(headers + "\n".join(includes) + "\n" + function + body + "\n}\n")
    compiler = ["cc"] if block.language == "c" else ["c++", "-std=c++20"]
    folders = [option for each in INCLUDED for option in ("-isystem", each)]
    command = [*compiler, "-fsyntax-only", "-Wall", "-Werror", *folders, source]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize("block", EXAMPLES)
def test_the_example_compiles(block: Block, tmp_path: Path) -> None:
    done = compiled(block, tmp_path)
    assert done.returncode == 0, done.stderr


def test_there_are_examples_in_both_languages() -> None:
    assert {example.values[0].language for example in EXAMPLES} == set(AROUND)
