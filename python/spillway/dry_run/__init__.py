# SPDX-License-Identifier: Apache-2.0
"""What a dry run says: whether a program fits, who holds the memory, how long a step is modelled to take."""
