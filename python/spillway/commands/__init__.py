# SPDX-License-Identifier: Apache-2.0
"""The subcommands of `spillway`, one module each."""
