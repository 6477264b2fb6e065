# SPDX-License-Identifier: Apache-2.0
"""How much memory allocators hold for what is live, over traces of real training."""
