# SPDX-License-Identifier: Apache-2.0
"""Trains one model: `train.py MODEL WAY PRECISION STEPS`."""

from __future__ import annotations

import sys

import sequences
import vision
from job import train

name, way, precision, steps = sys.argv[1:]
train({**vision.MODELS, **sequences.MODELS}[name](), way, precision, int(steps))
