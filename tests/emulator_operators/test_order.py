# SPDX-License-Identifier: Apache-2.0
"""The order checker sees every operator: it reports nothing for ordered code and names unordered accesses."""

import pytest
from order_cases import everything, train


@pytest.fixture(scope="module")
def seen(elsewhere):
    return elsewhere(everything, check="1")


def test_a_missing_wait_is_reported(seen):
    (report,) = seen["missing wait"]
    assert report.startswith("spillway-check: unordered")
    assert "aten::mul.Tensor" in report
    assert "memcpy host to device" in report
    assert "read after write" in report


def test_a_wait_is_not_reported(seen):
    assert seen["wait"] == []


def test_overwriting_a_buffer_in_use_is_reported(seen):
    (report,) = seen["overwritten too early"]
    assert "aten::mul.Tensor" in report
    assert "write after read" in report


def test_overwriting_a_buffer_after_its_use_is_not_reported(seen):
    assert seen["overwritten in order"] == []


def test_writing_in_place_what_is_being_read_is_reported(seen):
    (report,) = seen["written in place too early"]
    assert "aten::add_.Tensor" in report
    assert "write after read" in report


def test_writing_in_place_after_the_read_is_not_reported(seen):
    assert seen["written in place in order"] == []


def test_reusing_a_block_too_early_is_reported(seen):
    assert seen["reused too early"]["reused"]
    (report,) = seen["reused too early"]["reports"]
    assert "aten::mul.Tensor" in report
    assert "write after read" in report


def test_what_the_allocator_learnt_inside_an_operator_counts(seen):
    # The allocator queries the recorded event during the operator, and the copy has passed.
    assert seen["reused in order"] == {"reused": True, "reports": []}


def test_interleaved_views_are_not_the_same_bytes(seen):
    assert seen["columns"] == []


def test_indices_are_read_too(seen):
    assert any("aten::index.Tensor" in report for report in seen["indices"])


def test_reading_a_value_orders_the_host(seen):
    assert seen["value read"] == []


def test_columns_of_many_rows_are_distinguished_exactly(seen):
    assert seen["rows"]["apart"] == []
    assert len(seen["rows"]["overlapping"]) == 1


def test_the_elements_of_a_list_are_what_is_written(seen):
    (report,) = seen["lists too early"]
    assert '"aten::_foreach_add_.Scalar" writes' in report
    assert seen["lists in order"] == []


def test_a_write_that_the_schema_hides_is_seen(seen):
    (report,) = seen["running statistics"]
    assert "read after write" in report
    assert '"aten::native_batch_norm" writes 32 bytes' in report


@pytest.mark.parametrize("read", ["host sums too early", "item", "tolist", "numpy", "array"])
def test_reading_pinned_memory_too_early_is_reported(seen, read):
    (report,) = seen[read]
    assert "read after write" in report
    assert "on the host is not ordered after" in report


def test_reading_pinned_memory_in_order_is_not_reported(seen):
    assert seen["host sums in order"] == []
    assert seen["all in order"] == []


def test_overwriting_pinned_memory_too_early_is_reported(seen):
    (report,) = seen["host writes too early"]
    assert '"aten::fill_.Scalar" on the host is not ordered after "memcpy host to device"' in report


def test_overwriting_pinned_memory_in_order_is_not_reported(seen):
    assert seen["host writes in order"] == []


def test_looking_at_a_shape_reads_nothing(seen):
    assert seen["host looks"] == []


def test_pinned_memory_that_is_used_again_is_not_reported(seen):
    assert seen["pinned again"] == []


def test_the_same_two_operations_are_one_report_with_a_count(seen):
    assert len(seen["again"]) == 2  # each after the other
    assert sorted(report.splitlines()[-1].strip() for report in seen["again"]) == ["2 times", "3 times"]


def test_both_operations_are_placed_in_the_program(seen):
    (report,) = seen["lists too early"]
    _, now, before, *_ = report.splitlines()
    assert '"aten::mul.Tensor" reads' in now
    assert "order_cases.py:" in now and " in work_in_lists" in now
    assert "order_cases.py:" in before and " in work_in_lists" in before


def test_a_backward_operation_is_placed_where_its_forward_operation_was(seen):
    (report,) = seen["backward"]
    assert ": backward of order_cases.py:" in report


def test_the_tag_of_the_region_is_named_for_its_operation_alone(seen):
    (report,) = seen["region"]
    _, now, before, *_ = report.splitlines()
    assert '"aten::add_.Tensor" writes' in before and ", tag encoder: " in before
    assert '"aten::mul_.Tensor" writes' in now and ", tag" not in now


def test_training_is_not_reported(seen):
    assert seen["training"] == []


def test_training_under_the_late_schedule_is_not_reported(elsewhere):
    assert elsewhere(train, check="1", schedule="late") == []
