# SPDX-License-Identifier: Apache-2.0
"""A tensor on the wrong device is refused where PyTorch refuses it on a real GPU: the table is right."""

import pytest
import torch
from mixed_devices import ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_mixed_devices(row):
    tensors = torch.ones(3, 3, device="cuda"), torch.ones(3, 3)
    if not row.refusal:
        row.call(*tensors)
        return
    with pytest.raises(RuntimeError, match=row.refusal):
        row.call(*tensors)
