# SPDX-License-Identifier: Apache-2.0
"""The demonstration: a small GPT trained on real text, plain and with its saved activations on the host."""
