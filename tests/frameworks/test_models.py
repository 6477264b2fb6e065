# SPDX-License-Identifier: Apache-2.0
"""Ten steps of training on the emulated GPU give the bits of ten on the CPU: losses, parameters, buffers.

The suite runs with SPILLWAY_EMULATE_RNG=cpu, so that both draw the same random numbers.
"""

import models
import pytest


@pytest.mark.parametrize(
    "fit", [models.fit_gpt, models.fit_resnet50, models.fit_lstm, models.fit_lora, models.fit_unet]
)
def test_a_model_trains_to_the_bits_of_a_cpu_run(fit):
    there = fit("cuda")
    assert there == fit("cpu")
    assert len(set(there["losses"])) == len(there["losses"])
