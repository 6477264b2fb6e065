# SPDX-License-Identifier: Apache-2.0
"""The demonstration: one small transformer trained on real text, plain and with its saved activations on the host."""
