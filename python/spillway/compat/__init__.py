# SPDX-License-Identifier: Apache-2.0
"""The exact signatures of other projects' interfaces, where they disagree with each other."""
