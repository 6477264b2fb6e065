# SPDX-License-Identifier: Apache-2.0
"""The saved-tensor engine's cases, on PyTorch's and on Spillway's allocator.

Each runs in the late schedule of the emulated GPU, those about order in the eager one as well. A case is a
function with the decorator `case`; its name is its claim.
"""

import functools
import gc
import importlib
import sys
import traceback

MODULES = (
    "accepted",
    "budget_operands",
    "budget_optimizers",
    "budget_breakdown",
    "budget_plans",
    "budget_products",
    "budgets",
    "checkpoint_compiled",
    "checkpoint_memory",
    "checkpoint_objects",
    "checkpoint_parameters",
    "checkpoint_state",
    "checkpoints",
    "compiled",
    "costs",
    "function_transforms",
    "graphs",
    "late_writes",
    "layouts",
    "managers",
    "microbatches",
    "nesting",
    "nesting_generated",
    "normalized",
    "parity",
    "parts",
    "parts_arguments",
    "parts_gradients",
    "parts_inside",
    "parts_order",
    "parts_waits",
    "prefetch",
    "ranges",
    "ratios",
    "recomputable_functions",
    "recompute_edits",
    "recompute_in_place",
    "recompute_masks",
    "recompute_models",
    "recompute_rules",
    "recomputing",
    "regions",
    "repeated_rules",
    "replanning",
    "skipped",
    "steady",
    "streams",
)
#: Those whose claims are about when something happens. They run in the eager schedule as well.
ABOUT_ORDER = {
    f"cases.{name}"
    for name in (
        "graphs",
        "late_writes",
        "microbatches",
        "parts_order",
        "parts_waits",
        "prefetch",
        "steady",
        "streams",
    )
}
#: Those whose claims need Spillway's allocator.
ON_SPILLWAY = {f"cases.{name}" for name in MODULES if name.startswith("parts")}
CASES = {}


def case(function):
    """Registers a claim. It takes no argument and fails by raising."""
    CASES[function.__name__] = function
    return function


def of_threads(function):
    """Marks a claim whose threads free each other's memory once a copy has read it. PyTorch's allocator hands
    it on under a lock that the order checker cannot see, so its reports count only over Spillway's."""
    function.of_threads = True
    return function


def case_of(name, function, *given):
    """Registers a claim of this name about the arguments given, which the function takes."""
    claim = functools.partial(function, *given)
    claim.__name__ = name
    return case(claim)


def load():
    for module in MODULES:
        importlib.import_module(f"cases.{module}")
    return CASES


def run(allocator, names):
    """Runs these cases in this process: the text of what went wrong by name, empty where nothing did."""
    import spillway
    import torch

    from cases.measure import unordered

    if allocator == "spillway":
        spillway.use_allocator()
    wrong, modules = {}, 0
    # Those of cuDNN's kernels that add in the order of their threads would not have the same bits again.
    torch.backends.cudnn.deterministic = True
    for name, function in load().items():
        if name not in names:
            continue
        # What modules made when they were imported stays, and collections pass it over: looking at all of
        # torch and its compiler after each case took longer than the cases.
        if len(sys.modules) > modules:
            modules = len(sys.modules)
            gc.freeze()
        try:
            before = len(unordered())
            torch.manual_seed(0)
            function()
            torch.cuda.synchronize()
            reports = unordered()[before:]
            seen = allocator == "spillway" or not getattr(function, "of_threads", False)
            assert not (seen and reports), "not ordered: " + "; ".join(reports[:3])
            wrong[name] = ""
        except Exception:
            wrong[name] = traceback.format_exc()
        gc.collect()
        # A workspace of each stream that has multiplied matrices would be live in all later cases.
        torch._C._cuda_clearCublasWorkspaces()
        spillway.step()
    return wrong
