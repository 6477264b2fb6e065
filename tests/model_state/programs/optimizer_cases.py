# SPDX-License-Identifier: Apache-2.0
"""Which optimizers run with which options. A case is written NAME.IMPLEMENTATION.OPTION+OPTION."""

import itertools
import random

FOREACH = ("for_loop", "foreach")
CAPTURABLE = (*FOREACH, "capturable")
# The implementations that torch has for the GPU.
OPTIMIZERS = {
    "ASGD": CAPTURABLE,
    "Adadelta": CAPTURABLE,
    "Adafactor": FOREACH,
    "Adagrad": FOREACH,
    "Adam": (*CAPTURABLE, "fused"),
    "AdamW": (*CAPTURABLE, "fused"),
    "Adamax": CAPTURABLE,
    "LBFGS": ("for_loop",),
    "Muon": ("for_loop",),
    "NAdam": CAPTURABLE,
    "RAdam": CAPTURABLE,
    "RMSprop": CAPTURABLE,
    "Rprop": CAPTURABLE,
    "SGD": (*FOREACH, "fused"),
    "SparseAdam": ("for_loop",),
}
OPTIONS = (
    "accumulate", "add_group", "clip", "closure", "extra", "groups", "keep_zeros", "maximize", "scaler",
    "scheduler", "tensor_lr",
)  # fmt: skip
# What torch refuses, or has no parameter for.
_NO_MAXIMIZE = ("LBFGS", "Muon")
_TENSOR_LR = ("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "RMSprop", "Rprop", "SGD")
_ONE_GROUP = ("LBFGS",)
_SPARSE = ("SparseAdam",)
_STATES_FIRST = ("Adagrad",)  # made with the optimizer, of the groups it has then


def _possible(name, implementation, options):
    """Without the options that torch refuses here."""
    left = set(options)
    if name in _NO_MAXIMIZE:
        left.discard("maximize")
    if name not in _TENSOR_LR or implementation == "foreach":
        left.discard("tensor_lr")
    if name in _ONE_GROUP:
        left -= {"groups", "add_group", "scaler"}
        left.add("closure")
    if name in _SPARSE:
        left -= {"clip", "scaler"}
    if name in _STATES_FIRST:
        left.discard("add_group")
    if "closure" in left:
        left.discard("scaler")
    return tuple(sorted(left))


def _variants():
    return [(name, each) for name, implementations in OPTIMIZERS.items() for each in implementations]


def _written(name, implementation, options):
    return f"{name}.{implementation}.{'+'.join(_possible(name, implementation, options)) or 'plain'}"


def pairwise():
    """Each implementation with a set of options and with all others."""
    dice = random.Random(7)
    for name, implementation in _variants():
        some = [each for each in OPTIONS if dice.random() < 0.5]
        yield _written(name, implementation, some)
        yield _written(name, implementation, [each for each in OPTIONS if each not in some])


def product():
    """Each implementation with at most two options, and with all but at most two; each case once."""
    written = {}
    for name, implementation in _variants():
        for some in itertools.chain.from_iterable(
            itertools.combinations(OPTIONS, count) for count in range(3)
        ):
            written[_written(name, implementation, some)] = True
            written[_written(name, implementation, [each for each in OPTIONS if each not in some])] = True
    return list(written)
