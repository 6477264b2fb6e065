# SPDX-License-Identifier: Apache-2.0
"""Predictions of dry runs, written down before anything was measured, beside what was measured."""
