# SPDX-License-Identifier: Apache-2.0
"""Trains one model: `train.py MODEL WAY PRECISION STEPS`."""

from __future__ import annotations

import sys

import sequences
from job import train

name, way, precision, steps = sys.argv[1:]
if name in sequences.MODELS:
    job = sequences.MODELS[name]()
else:
    import vision  # needs the packages of bench/models/requirements.txt

    job = vision.MODELS[name]()
train(job, way, precision, int(steps))
