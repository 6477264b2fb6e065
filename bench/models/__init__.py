# SPDX-License-Identifier: Apache-2.0
"""Training loops of known models beside activation checkpointing, in the same memory."""
