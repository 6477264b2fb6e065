# SPDX-License-Identifier: Apache-2.0
"""Reading a tensor's memory after the tensor is gone shows: it holds no numbers then."""

import spillway
import torch
from conftest import Emulator


def late_copy(keeps):
    """Whether a copy on another stream still finds a tensor that was dropped meanwhile."""
    side = torch.cuda.Stream()
    tensor = torch.ones(4096, device="cuda")
    host = torch.zeros(4096, pin_memory=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        host.copy_(tensor, non_blocking=True)
    if keeps:
        tensor.record_stream(side)
    del tensor
    torch.cuda.current_stream().synchronize()
    side.synchronize()
    return [bool(host.isnan().all()), bool((host == 1).all())]


def stale_view():
    """What an empty tensor finds in a block that another one left."""
    torch.ones(4096, device="cuda")
    return bool(torch.empty(4096, device="cuda").isnan().all())


def test_a_late_copy_of_a_dropped_tensor_copies_no_numbers(elsewhere):
    assert elsewhere(late_copy, False, poison="1", schedule="late") == [True, False]


def test_a_recorded_stream_keeps_the_tensor(elsewhere):
    assert elsewhere(late_copy, True, poison="1", schedule="late") == [False, True]


def test_without_poison_the_same_mistake_is_not_seen(elsewhere):
    assert elsewhere(late_copy, False, schedule="late") == [False, True]


def test_recycled_memory_holds_no_numbers(elsewhere):
    assert elsewhere(stale_view, poison="1") is True


def test_training_does_not_meet_the_poison(elsewhere):
    assert elsewhere(loss, poison="1") == elsewhere(loss)


def test_offload_does_not_meet_the_poison(elsewhere):
    plain = elsewhere(loss)
    assert elsewhere(moved_loss) == [plain, 0]
    assert elsewhere(moved_loss, poison="1", schedule="late", check="1") == [plain, 0]


def stale_view_of_ours():
    spillway.use_allocator()
    torch.ones(4096, device="cuda")
    return bool(torch.empty(4096, device="cuda").isnan().all())


def test_recycled_memory_of_our_allocator_holds_no_numbers(elsewhere):
    assert elsewhere(stale_view_of_ours, poison="1") is True
    assert elsewhere(stale_view_of_ours) is False


def moved_loss():
    """The loss where everything that is saved moves, and the number of unordered uses."""
    spillway.use_allocator()
    with spillway.CPUOffload(1.0, tag="all"):
        value = loss()
    assert Emulator().count("bytes_to_host") > 0
    return [value, Emulator().count("unordered")]


def loss():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        value = model(torch.randn(16, 32, device="cuda")).square().mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return value.item()
