# SPDX-License-Identifier: Apache-2.0
"""docs/emulation-operators.md reports every operator how it is served."""

import operator_table
import pytest
import torch

VERSION = f"Of PyTorch {torch.__version__.partition('+')[0]}. "


@pytest.mark.skipif(VERSION not in operator_table.PAGE.read_text(), reason="the page is of another torch")
def test_the_page_is_what_is_installed():
    assert operator_table.PAGE.read_text() == operator_table.page(), "run operator_table.py --write"


def test_most_operators_are_emulated():
    strided = operator_table.kinds("CUDA")
    assert len(strided["emulated"]) > 1000
    assert len(strided["refused"]) < 50
