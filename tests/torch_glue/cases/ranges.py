# SPDX-License-Identifier: Apache-2.0
"""Of a storage that moves, the bytes that saved tensors cover are copied, each once."""

import random

import spillway
import torch

from cases import case
from cases.measure import Copied, last, same, save

KIB = 1024


def bytes_of(count):
    """A tensor of this many bytes that nothing else references."""
    return torch.randn(count // 4, device="cuda")


def round_trip(make):
    """Saves the views that `make` gives, lets their storage go and brings them back: gives them, and what
    was copied out and back."""
    seen = []
    with spillway.CPUOffload(1, tag="ranges"), Copied() as out:
        views = make()
        graph = save(seen, *views)
        expected = [view.detach().cpu() for view in views]
        facts = [(view.shape, view.stride(), view.dtype, view.data_ptr() % 512) for view in views]
        del views
    torch.cuda.synchronize()
    spillway.step()  # over PyTorch's allocator the source ends here
    with Copied() as back:
        graph.backward()
    assert facts == [(view.shape, view.stride(), view.dtype, view.data_ptr() % 512) for view in seen]
    assert same(seen, expected)
    return seen, out, back


def moves(make, count):
    """The views are fetched exactly, for `count` bytes each way and one fetch."""
    seen, out, back = round_trip(make)
    assert out.out == back.back == count > 0, (out.out, back.back, count)
    assert back.fetches == 1
    return seen, out


@case
def a_single_element_of_any_stride_is_fetched():
    moves(lambda: [bytes_of(16 * KIB).as_strided((1, 1), (59, 59), 7)], 4)


@case
def half_of_a_tensor_moves_half_its_bytes():
    moves(lambda: [bytes_of(4096 * KIB).chunk(2)[0]], 2048 * KIB)
    moves(lambda: [bytes_of(4096 * KIB).view(1024, 1024).chunk(2)[1].t()], 2048 * KIB)
    (seen,), _ = moves(lambda: [bytes_of(16 * KIB).chunk(2)[1]], 8 * KIB)
    assert seen.untyped_storage().nbytes() == 8 * KIB


@case
def views_that_lie_far_apart_move_their_own_bytes():
    def make():
        whole = bytes_of(1024 * KIB)
        return [whole[30_000:31_000], whole[100_000:100_007], whole[200_000:]]

    _, out = moves(make, 1000 * 4 + 7 * 4 + (256 * KIB - 200_000) * 4)
    assert out.stashes == 3


@case
def views_that_overlap_move_their_union_once_and_share_it():
    def make():
        whole = bytes_of(4096 * KIB)
        return [whole[: 256 * KIB], whole[128 * KIB : 512 * KIB], whole[: 512 * KIB].view(512, 1024)[3:9].t()]

    seen, _ = moves(make, 2048 * KIB)
    assert len({view.untyped_storage().data_ptr() for view in seen}) == 1
    assert seen[1].data_ptr() - seen[0].data_ptr() == 128 * KIB * 4


@case
def a_view_that_was_saved_first_is_not_copied_again_within_its_whole():
    def make():
        whole = bytes_of(4096 * KIB)
        return [whole[256 * KIB : 512 * KIB], whole]

    _, out = moves(make, 4096 * KIB)
    assert out.stashes == 3


@case
def views_of_every_kind_move_what_they_cover():
    window = 300 * 8 + 40
    for make, count in (
        (lambda: [bytes_of(1024 * KIB).as_strided((301, 41), (8, 1), 50_000)], (window + 1) * 4),
        (
            lambda: [torch.randn(8, 8, 32, 32, device="cuda").to(memory_format=torch.channels_last)[2:4]],
            2 * 32768,
        ),
        (lambda: [bytes_of(1024 * KIB)[70_000:70_001].expand(512)], 4),
        (lambda: [bytes_of(1024 * KIB)[70_000:80_000].view(100, 100).t()], 40_000),
        (lambda: [bytes_of(1024 * KIB)[70_000:80_000].view(torch.int32)], 40_000),
        (lambda: [bytes_of(1024 * KIB)[70_001:80_001].view(torch.uint8)[3:30_000]], 29_997),
        (lambda: [torch.view_as_complex(bytes_of(1024 * KIB)[70_000:80_000].view(-1, 2))], 40_000),
        (
            lambda: [
                torch.view_as_real(torch.randn(99_000, dtype=torch.complex64, device="cuda"))[20_000:40_000]
            ],
            160_000,
        ),
        (lambda: [torch.randn(99_000, dtype=torch.complex64, device="cuda")[20_000:40_000].conj()], 160_000),
    ):
        moves(make, count)


@case
def columns_that_are_saved_apart_are_one_copy():
    def make():
        return list(torch.randn(512, 3 * 64, device="cuda").chunk(3, dim=1))

    _, out = moves(make, 512 * 3 * 64 * 4)
    assert out.stashes == 1


@case
def the_rows_of_a_sequence_are_few_copies():
    def make():
        return list(torch.randn(256, 1024, device="cuda").unbind(0))

    _, out = moves(make, 1024 * KIB)
    assert out.stashes == 17  # the first row, and blocks of 64 KiB


@case
def an_empty_view_holds_no_memory():
    seen = []
    before = torch.cuda.memory_allocated()
    with spillway.CPUOffload(1, tag="empty"), Copied() as out:
        whole = bytes_of(1024 * KIB)
        graph = save(seen, whole.view(512, -1)[3:3, 7:])
        expected = (whole.view(512, -1)[3:3, 7:].shape, whole.view(512, -1)[3:3, 7:].stride())
        del whole
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before < 64 * KIB and out.out == 0
    graph.backward()
    assert (seen[0].shape, seen[0].stride()) == expected and seen[0].device.type == "cuda"


@case
def a_view_saved_by_a_later_graph_extends_the_copy():
    seen = [[], []]
    with spillway.CPUOffload(1, tag="later"):
        whole = bytes_of(1024 * KIB)
        with Copied() as first:
            one = save(seen[0], whole[: 64 * KIB])
        with Copied() as second:
            other = save(seen[1], whole[32 * KIB : 192 * KIB])
        expected = [whole[: 64 * KIB].cpu(), whole[32 * KIB : 192 * KIB].cpu()]
        del whole
    torch.cuda.synchronize()
    spillway.step()
    assert (first.out, second.out) == (256 * KIB, 512 * KIB)
    with Copied() as back:
        other.backward()
        one.backward()
    assert same([*seen[0], *seen[1]], expected)
    assert back.fetches == 1 and back.back == 768 * KIB


@case
def an_edit_between_two_saves_takes_the_bytes_that_it_may_have_changed_again():
    seen = []
    with spillway.CPUOffload(1, tag="edited"), Copied() as out:
        whole = bytes_of(1024 * KIB)
        stale = save([], whole[: 64 * KIB])
        far = save([], whole[192 * KIB :])
        torch.cuda.synchronize()  # the edit is not to meet the copies
        whole[32 * KIB : 128 * KIB].neg_()
        graph = save(seen, whole[32 * KIB : 128 * KIB])
        expected = whole[32 * KIB : 128 * KIB].cpu()
        del whole
    torch.cuda.synchronize()
    spillway.step()
    # The first view's bytes once more, the other one's not.
    assert out.out == (256 + 256 + 512) * KIB, out.out
    graph.backward()
    assert same(seen, [expected])
    del stale, far


@case
def parts_with_counters_of_their_own_do_not_copy_each_other_again():
    def make():
        return list(bytes_of(1024 * KIB).unsafe_chunk(2))

    _, out = moves(make, 1024 * KIB)
    assert out.stashes == 2
    _, out = moves(lambda: list(bytes_of(1024 * KIB).unsafe_chunk(64)), 1024 * KIB)
    assert out.stashes == 64


@case
def the_ratio_counts_storages_and_the_link_what_is_covered():
    for _ in range(2):
        graphs = []
        with spillway.CPUOffload(0.5, tag="halves"), Copied() as out:
            for _ in range(4):
                graphs.append(save([], bytes_of(1024 * KIB)[: 128 * KIB]))
        for graph in graphs:
            graph.backward()
        graphs.clear()
        spillway.step()
        step = last("halves")
        assert step["offloadable_bytes"] == 4096 * KIB and step["offloaded_bytes"] == 2048 * KIB, step
        assert step["copied_bytes"] == out.out == 1024 * KIB, step
        assert step["fetched_bytes"] <= 1024 * KIB, step


@case
def a_graph_that_is_kept_brings_its_part_back_each_time():
    seen = []
    with spillway.CPUOffload(1, tag="retained"):
        whole = bytes_of(1024 * KIB)
        graph = save(seen, whole[64 * KIB : 128 * KIB], whole[96 * KIB : 160 * KIB])
        expected = [whole[64 * KIB : 128 * KIB].cpu(), whole[96 * KIB : 160 * KIB].cpu()]
        del whole
    torch.cuda.synchronize()
    spillway.step()
    for _ in range(3):
        with Copied() as back:
            graph.backward(retain_graph=True)
        assert same(seen, expected) and back.back == 96 * 4 * KIB
        seen.clear()


@case
def random_views_are_fetched_as_they_were():
    seed = random.randrange(1 << 30)
    try:
        random_views(random.Random(seed))
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


def random_views(dice):
    def view_of(whole):
        kind = dice.randrange(4)
        begin = dice.randrange(whole.numel())
        if kind == 0:
            return whole[begin : begin + dice.choice([1, 100, 30_000, 200_000])]
        if kind == 1:
            rows, columns = dice.randrange(1, 40), dice.randrange(1, 40)
            strides = (dice.randrange(200), dice.randrange(200))
            reach = (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1
            return whole.as_strided((rows, columns), strides, dice.randrange(whole.numel() - reach))
        if kind == 2:
            return whole.view(256, -1)[:, begin % 900 :].t()
        return whole.view(torch.uint8)[begin:][: dice.randrange(1, 100_000)]

    for _ in range(30):

        def make():
            whole = bytes_of(dice.choice([1024, 4096]) * KIB)
            return [view_of(whole) for _ in range(dice.randrange(1, 7))]

        _, out, back = round_trip(make)
        assert 0 < out.out == back.back <= 4096 * KIB, (out.out, back.back)
