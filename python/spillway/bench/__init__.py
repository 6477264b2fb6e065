# SPDX-License-Identifier: Apache-2.0
"""The micro-benchmarks: programs of Google Benchmark beside the package, and what they print."""
