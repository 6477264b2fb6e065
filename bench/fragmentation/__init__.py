# SPDX-License-Identifier: Apache-2.0
"""How much memory allocators reserve for what is allocated, over traces of real training."""
