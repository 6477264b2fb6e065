# SPDX-License-Identifier: Apache-2.0
"""Spillway beside other systems that move activations and weights, in one run each on the emulated GPU."""
