# SPDX-License-Identifier: Apache-2.0
"""The minor versions of torch that Spillway is written for. CMake and the scripts read these two lines too;
pyproject.toml repeats them, and a test compares."""

OLDEST = "2.11"
NEWEST = "2.15"
