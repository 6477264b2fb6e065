# SPDX-License-Identifier: Apache-2.0
"""Dry runs: what the host reads where nothing has computed a value."""

import math

import pytest
import torch

DRY = dict(shape_only="1", memory="141GiB")


def questions_of_a_guard():
    x = torch.randn(1024, 1024, device="cuda")
    mask = torch.isnan(x)
    ones = torch.isnan(x).fill_(True)
    return {
        "nan": torch.isnan(x).any().item(),
        "inf": torch.isinf(x).any().item(),
        "finite": torch.isfinite(x).all().item(),
        "not finite": (~torch.isfinite(x)).any().item(),
        "either": (torch.isnan(x) | torch.isinf(x)).any().item(),
        "both": (torch.isnan(x) & torch.isfinite(x)).any().item(),
        "how many": mask.sum().item(),
        "in a row": mask.sum(1)[0].item(),
        "one of them": mask[3, 4].item(),
        "counted": torch.count_nonzero(mask).item(),
        "of a view": mask[:, :512].sum().item(),
        "written since": ones.sum().item(),
        "loss": x.mean().isnan().item(),
        "place": x.argmax().item(),
    }


def test_numbers_are_finite_unless_something_else_is_assumed(elsewhere):
    assert elsewhere(questions_of_a_guard, **DRY) == {
        "nan": False,
        "inf": False,
        "finite": True,
        "not finite": False,
        "either": False,
        "both": False,
        "how many": 0,
        "in a row": 0,
        "one of them": False,
        "counted": 0,
        "of a view": 0,
        "written since": 1,
        "loss": False,
        "place": 0,
    }


def test_no_number_is_finite_where_that_is_assumed(elsewhere):
    found = elsewhere(questions_of_a_guard, assume="finite=0", **DRY)
    assert found == {
        "nan": True,
        "inf": True,
        "finite": False,
        "not finite": True,
        "either": True,
        "both": False,
        "how many": 1024 * 1024,
        "in a row": 1024,
        "one of them": True,
        "counted": 1024 * 1024,
        "of a view": 1024 * 512,
        "written since": 1,
        "loss": True,
        "place": 0,
    }


def generated():
    """As transformers does, with a prompt that is too large to be computed."""
    text = torch.ones(2, 1024, dtype=torch.long, device="cuda")
    scores = torch.nn.Linear(64, 32000, device="cuda")
    ends = torch.tensor([1, 2], device="cuda")
    going_on = torch.ones(2, dtype=torch.long, device="cuda")
    while text.shape[1] < 1100:
        word = scores(torch.ones(2, 64, device="cuda")).softmax(-1).multinomial(1)
        text = torch.cat([text, word], dim=1)
        going_on = going_on & ~torch.isin(text[:, -1], ends)
        if going_on.max() == 0:
            break
    return text.shape[1]


def test_a_text_is_generated_to_its_greatest_length(elsewhere):
    assert elsewhere(generated, **DRY) == 1100


def scaled():
    model = torch.nn.Linear(1024, 1024, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler()
    for _ in range(3):
        with torch.autocast("cuda"):
            loss = model(torch.ones(1024, 1024, device="cuda")).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return scaler.get_scale(), loss.item()


@pytest.mark.parametrize(("finite", "scale"), [("1", 65536.0), ("0", 65536.0 / 8)])
def test_a_gradient_scaler_sees_what_is_assumed(elsewhere, finite, scale):
    found, loss = elsewhere(scaled, assume=f"finite={finite}", **DRY)
    assert found == scale
    assert math.isnan(loss) == (finite == "0")


def waits(reader):
    read = globals()[reader]
    largest = torch.ones(1024, 1024, device="cuda").max()
    try:
        while read(largest):
            pass
    except NotImplementedError as error:
        return str(error)


def by_item(largest):
    return largest.item() > 0.5


def by_truth(largest):
    return largest > 0.5


def by_copy(largest):
    return largest.cpu() > 0.5


@pytest.mark.parametrize(
    ("reader", "function", "value"),
    [("by_item", "by_item", "1"), ("by_truth", "waits", "true"), ("by_copy", "by_copy", "1")],
)
def test_a_loop_that_waits_for_a_value_stops_with_its_line(elsewhere, reader, function, value):
    said = elsewhere(waits, reader, **DRY)
    assert "aten::_local_scalar_dense: test_shape_only_reads.py:" in said
    assert f" in {function}" in said
    assert f"has read the value {value} 100000 times" in said
    assert "--assume value=NUMBER" in said


def reads_on():
    numbers = torch.arange(300, device="cuda")
    return sum(numbers[i % 300].item() for i in range(110_000))


def test_values_that_change_may_be_read_indefinitely(elsewhere):
    assert elsewhere(reads_on, **DRY) == sum(i % 300 for i in range(110_000))


def sizes():
    rows = torch.ones(64, 4096, device="cuda")
    few = torch.tensor([3, 1] * 32, device="cuda")
    many = torch.full((4096,), 3, device="cuda")
    said = []
    for ask in (
        lambda: torch.repeat_interleave(rows, few, dim=0),
        lambda: torch.repeat_interleave(many, output_size=5000),
        lambda: torch.repeat_interleave(many),
        lambda: torch.bincount(many, minlength=7000),
        lambda: torch.bincount(many, many.float(), minlength=7000),
        lambda: torch.bincount(few),
        lambda: torch.bincount(many),
    ):
        try:
            made = ask()
            said.append([*made.shape, str(made.dtype)])
        except NotImplementedError as error:
            said.append(str(error))
    return said


def test_sizes_that_values_decide_are_those_of_small_ones_or_given(elsewhere):
    repeated, given, not_given, bins, weighed, counted, not_known = elsewhere(sizes, **DRY)
    assert repeated == [128, 4096, "torch.float32"]
    assert given == [5000, "torch.int64"]
    assert "aten::repeat_interleave.Tensor" in not_given and "output_size" in not_given
    assert bins == [7000, "torch.int64"]
    assert weighed == [7000, "torch.float32"]
    assert counted == [4, "torch.int64"]
    assert "aten::bincount" in not_known and "minlength" in not_known
