# SPDX-License-Identifier: Apache-2.0
"""Dry runs: whether a program fits, who holds the memory, how long a step is modeled to take."""
