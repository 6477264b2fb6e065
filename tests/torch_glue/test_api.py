# SPDX-License-Identifier: Apache-2.0
"""The Python interface: what it accepts, what it refuses, and what it shows."""

import math

import pytest
import spillway
from conftest import EMULATED
from spillway import _load

(BUILT,) = _load.built_for()


@pytest.mark.parametrize("value", [-0.1, 1.5, math.nan, math.inf])
def test_a_ratio_outside_the_range_is_refused(value):
    with pytest.raises(ValueError, match=r"offload_ratio .*not"):
        spillway.CPUOffload(value)


@pytest.mark.parametrize("value", [True, "0.5", None, [0.5]])
def test_a_ratio_that_is_no_number_is_refused(value):
    with pytest.raises(TypeError, match=r"offload_ratio .*not"):
        spillway.CPUOffload(value)


def test_a_tag_that_is_no_string_is_refused():
    with pytest.raises(TypeError, match=r"tag .*not 3"):
        spillway.CPUOffload(0.5, tag=3)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_fwd_stash_size": 0}, ValueError, "max_fwd_stash_size .*not 0"),
        ({"max_fwd_stash_size": 2.0}, TypeError, "max_fwd_stash_size .*not 2.0"),
        ({"min_offload_size": -1}, ValueError, "min_offload_size .*not -1"),
        (
            {"min_offload_size": 2**70},
            ValueError,
            f"min_offload_size .*{2**63 - 1}, not {2**70}",
        ),
        ({"min_offload_size": True}, TypeError, "min_offload_size .*not True"),
        ({"use_streams": "no"}, TypeError, "use_streams .*not 'no'"),
        ({"use_pin_memory": 1}, TypeError, "use_pin_memory .*not 1"),
    ],
)
def test_a_manager_names_the_option_that_it_refuses(options, error, text):
    with pytest.raises(error, match=text):
        spillway.compat.OffloadActivations(**options)


def test_a_manager_for_no_model_is_refused():
    with pytest.raises(TypeError, match=r"keep_on_device: .*not 3"):
        spillway.memory.keep_on_device(3)
    with pytest.raises(TypeError, match=r"model .*not 3"):
        spillway.compat.get_act_offloading_ctx_manager(3)


def test_importing_the_package_imports_no_torch(program):
    assert program("import sys, spillway\nreport('torch' in sys.modules)", fresh=True) is False


def test_the_version_is_that_of_the_build():
    from importlib.metadata import version

    assert spillway.__version__ == version("spillway")


def test_another_torch_is_refused_and_both_versions_named(program):
    message = program(
        """
import torch, spillway
torch.__version__ = "2.99.0"
try:
    spillway.use_allocator()
except ImportError as error:
    report(str(error))
"""
    )
    assert message.startswith("torch 2.99.0: ") and f"torch {BUILT};" in message
    assert "torch 2.11 to 2.15 are supported" in message


def test_the_module_itself_refuses_another_torch(program):
    message = program(
        f"""
import torch, importlib
torch.__version__ = "2.99.0"
try:
    importlib.import_module("spillway.{_load.built_for()[BUILT]}")
except ImportError as error:
    report(str(error))
"""
    )
    assert BUILT in message and "2.99.0" in message


def test_a_setting_that_cannot_be_used_is_named_before_anything_changes(program):
    message, backend = program(
        """
import torch, spillway
try:
    spillway.use_allocator()
except ValueError as error:
    report([str(error), torch.cuda.get_allocator_backend()])
""",
        SPILLWAY_PINNED_LIMIT="plenty",
    )
    assert "SPILLWAY_PINNED_LIMIT" in message and "plenty" in message
    assert backend == "native"


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("SPILLWAY_PINNED_LIMIT", "1MiB", "limit"),
        ("SPILLWAY_NODE_PINNED_LIMIT", "1MiB", "node"),
        ("SPILLWAY_EMULATE_FAULT", "cuMemHostRegister:1+=not_supported", "driver"),
    ],
)
def test_without_host_memory_tensors_stay_and_training_goes_on(program, setting, value, reason):
    if setting.startswith("SPILLWAY_EMULATE") and not EMULATED:
        pytest.skip("needs a driver that refuses")
    skipped, offloaded, equal, refused = program(
        """
import torch, spillway
from cases.measure import Copied, last
def gradient(ratio, tag):
    torch.manual_seed(1)
    x = torch.randn(1024, 1024, device="cuda", requires_grad=True)
    with spillway.CPUOffload(ratio, tag=tag):
        y = (x * 2).sigmoid().tanh().sum()
    y.backward()
    return x.grad
ours = gradient(1, "ours")
report([last("ours")["skipped"], last("ours")["offloaded_bytes"], torch.equal(ours, gradient(0, "plain")),
        spillway.stats()["devices"][0]["host"]["refused"]])
""",
        **{setting: value},
    )
    assert skipped["no_host_memory"]["storages"] == 2
    assert offloaded == 0 and equal
    assert refused[reason] > 0 and sum(refused.values()) == refused[reason]


def test_the_bytes_of_a_tag_are_logged_when_they_change_at_debug_and_no_other_level(program):
    lines = program(
        """
import logging, torch, spillway
class Lines(logging.Handler):
    def emit(self, record): lines.append(record.getMessage())
lines = []
logging.getLogger("spillway").addHandler(Lines())
def train(rows):
    x = torch.randn(rows, 64, device="cuda", requires_grad=True)
    with spillway.CPUOffload(0.5, tag="mlp"):
        y = (x * 2).sigmoid().tanh().sum()
    y.backward()
logging.getLogger("spillway").setLevel(logging.INFO)
for rows in (64, 32, 64):
    train(rows)
spillway.step()
silent = list(lines)
logging.getLogger("spillway").setLevel(logging.DEBUG)
for rows in (64, 64, 32, 32):
    train(rows)
spillway.step()
report([silent, lines])
"""
    )
    silent, lines = lines
    size = 64 * 64 * 4
    text = "tag 'mlp': {} of {} bytes of saved activations were offloaded in a step"
    assert silent == [] and lines == [text.format(size, 2 * size), text.format(size // 2, size)]


def test_the_memory_of_a_tensor_is_that_of_its_elements():
    import torch

    assert spillway.CPUOffload.get_tensor_memory(torch.zeros(3, 5).expand(2, 3, 5)) == 2 * 3 * 5 * 4


def test_statistics_have_every_documented_entry(program):
    stats, doc = program(
        """
import torch, spillway
x = torch.randn(64, 64, device="cuda", requires_grad=True)
with spillway.CPUOffload(1, tag="named"):
    (x * 2).sigmoid().sum().backward()
report([spillway.stats(), spillway.stats.__doc__])
"""
    )

    def keys(value):
        for key, inner in value.items():
            yield key
            if isinstance(inner, dict):
                yield from keys(inner)

    shown = {k for k in keys(stats) if not k.isdigit() and k not in ("named", "parameter", "tiny")}
    assert {k for k in shown if f"``{k}``" not in doc} == set()
    assert stats["tags"]["named"]["last"]["offloaded_bytes"] == 64 * 64 * 4


@pytest.mark.parametrize(
    ("budget", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        ("0GiB", ValueError),
        ("much", ValueError),
        (1.5, ValueError),
        ([], TypeError),
    ],
)
def test_a_budget_that_is_no_size_is_refused(budget, error):
    with pytest.raises(error, match="budget must be"):
        spillway.offload(budget=budget)


def test_a_budget_above_what_the_device_has_is_refused_with_the_range():
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    region = spillway.offload(budget=total + 1)
    with (
        pytest.raises(ValueError, match=rf"budget .*GPU 0.*{total} bytes.*not .*{total + 1} bytes"),
        region,
    ):
        pass


def test_a_budget_for_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match=r"model_or_region .*not 3"):
        spillway.offload(3, budget="1GiB")


def test_two_budgets_in_a_step_are_refused_and_both_are_named():
    text = "1048576 bytes.*2097152 bytes"
    inner = spillway.offload(budget=1 << 21)
    with spillway.offload(budget=1 << 20), pytest.raises(ValueError, match=text), inner:
        pass


@pytest.mark.parametrize(
    ("headroom", "error"), [(-1, ValueError), ("some", ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_headroom_that_is_no_size_is_refused(headroom, error):
    with pytest.raises(error, match="prefetch_headroom must be"):
        spillway.CPUOffload(1, prefetch_headroom=headroom)


def test_a_headroom_may_be_zero_and_the_error_states_the_range():
    assert spillway.CPUOffload(1, prefetch_headroom=0).prefetch_headroom == 0
    with pytest.raises(ValueError, match="prefetch_headroom must be at least 0"):
        spillway.CPUOffload(1, prefetch_headroom=-1)


def test_leaving_a_region_that_is_not_open_on_this_thread_is_refused():
    region = spillway.CPUOffload(1)
    with pytest.raises(RuntimeError, match="CPUOffload is not open on this thread"):
        region.__exit__(None, None, None)
    with region:
        pass
    with pytest.raises(RuntimeError, match="CPUOffload is not open on this thread"):
        region.__exit__(None, None, None)


def test_a_function_whose_body_runs_later_is_no_region():
    def generator():
        yield 1

    async def coroutine():
        return 1

    async def asynchronous_generator():
        yield 1

    for function in (generator, coroutine, asynchronous_generator):
        with pytest.raises(TypeError, match=rf"{function.__name__}: "):
            spillway.CPUOffload(1)(function)


def test_a_copy_of_used_micro_batches_has_seen_no_step(program):
    copied = program(
        """
import copy, pickle, torch, spillway
micro = spillway.microbatches(activation_loading_horizon=2)
def step(micro):
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    with micro:
        losses = []
        for _ in range(3):
            with micro.batch():
                losses.append((x * 2).sigmoid().sum())
        for loss in losses:
            loss.backward()
    return micro.stats()
used = step(micro)
ways = (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one)))
report([[step(copy_of(micro)) == used for copy_of in ways], used["units"]])
"""
    )
    assert copied == [[True] * 3, 3]
