# SPDX-License-Identifier: Apache-2.0
"""Every view is fetched exactly: sizes, strides, dtype, bits, and its address modulo 512."""

import spillway
import torch

from cases import case
from cases.measure import Copied, save


def is_fetched(make):
    """`make` gives a tensor that nothing else references."""
    seen = []
    with spillway.CPUOffload(1, tag="layouts"), Copied() as copied:
        tensor = make()
        graph = save(seen, tensor)
        keys = ("shape", "dtype")
        expected = [getattr(tensor, k) for k in keys]
        facts = [tensor.stride(), tensor.data_ptr() % 512]
        whole = tensor.untyped_storage().nbytes()
        signs = [tensor.is_conj(), tensor.is_neg()]
        values = tensor.detach().cpu()
        del tensor
    torch.cuda.synchronize()
    spillway.step()  # over PyTorch's allocator the source ends here
    with Copied() as returned:
        graph.backward()
    (back,) = seen
    assert copied.out > 0 and returned.back == copied.out
    assert expected == [getattr(back, k) for k in keys]
    assert facts == [back.stride(), back.data_ptr() % 512]
    assert back.untyped_storage().nbytes() <= whole
    assert signs == [back.is_conj(), back.is_neg()]
    assert torch.equal(back.cpu(), values)


@case
def channels_last_is_fetched():
    is_fetched(lambda: torch.randn(4, 8, 16, 16, device="cuda").contiguous(memory_format=torch.channels_last))


@case
def a_transposed_tensor_is_fetched():
    is_fetched(lambda: torch.randn(64, 32, device="cuda").t())


@case
def an_expanded_tensor_is_fetched_with_stride_zero():
    is_fetched(lambda: torch.randn(1, 512, device="cuda").expand(64, 512))


@case
def a_slice_of_a_large_tensor_is_fetched():
    is_fetched(lambda: torch.randn(64, 512, device="cuda")[3:17, 5:100:3])


@case
def overlapping_windows_are_fetched():
    is_fetched(lambda: torch.randn(2048, device="cuda").unfold(0, 64, 16))


@case
def a_tensor_without_elements_and_one_without_dimensions_are_fetched():
    seen = []
    with spillway.compat.OffloadActivations(min_offload_size=1), Copied() as copied:
        graph = save(seen, torch.empty(0, 64, device="cuda"), torch.tensor(3.0, device="cuda"))
    torch.cuda.synchronize()
    spillway.step()
    graph.backward()
    empty, scalar = seen
    assert (empty.shape, empty.stride(), empty.device.type) == ((0, 64), (64, 1), "cuda")
    assert scalar.shape == () and scalar.item() == 3 and copied.out == 4


@case
def permuted_dimensions_are_fetched():
    is_fetched(lambda: torch.randn(8, 16, 32, device="cuda").permute(2, 0, 1))


@case
def half_precision_is_fetched():
    is_fetched(lambda: torch.randn(64, 64, device="cuda").to(torch.bfloat16))


@case
def a_mask_is_fetched():
    is_fetched(lambda: torch.randn(64, 64, device="cuda") > 0)


@case
def a_conjugate_view_is_fetched():
    is_fetched(lambda: torch.randn(64, 64, device="cuda", dtype=torch.complex64).conj())


@case
def a_negative_view_is_fetched():
    is_fetched(lambda: torch.randn(64, 64, device="cuda", dtype=torch.complex64).conj().imag)


@case
def a_view_and_its_base_share_one_host_copy_and_one_fetch():
    seen = []
    with spillway.CPUOffload(1, tag="views"), Copied() as copied:
        base = torch.randn(64, 64, device="cuda")
        graph = save(seen, base, base[3:9].t(), base)
        expected = base.cpu()
        del base
    torch.cuda.synchronize()
    spillway.step()
    with Copied() as returned:
        graph.backward()
    assert copied.stashes == 1 and copied.out == 64 * 64 * 4
    assert returned.fetches == 1 and returned.back == 64 * 64 * 4
    assert torch.equal(seen[0].cpu(), expected) and torch.equal(seen[1].cpu(), expected[3:9].t())
    assert len({t.untyped_storage().data_ptr() for t in seen}) == 1


@case
def a_parameter_stays_whether_saved_as_it_is_or_transposed():
    parameter = torch.nn.Parameter(torch.randn(64, 64, device="cuda"))
    seen = []
    with spillway.CPUOffload(1, tag="parameter"), Copied() as copied:
        graph = save(seen, parameter, parameter.t(), torch.randn(32, 64, device="cuda"))
    assert copied.out == 32 * 64 * 4  # what is no parameter
    graph.backward()
    assert seen[0].data_ptr() == seen[1].data_ptr() == parameter.data_ptr()


@case
def a_storage_that_grew_between_two_saves_is_fetched_as_it_was_last():
    seen = []
    with spillway.CPUOffload(1, tag="grown"), Copied() as copied:
        tensor = torch.randn(4096, device="cuda")
        first = save([], tensor)
        torch.cuda.synchronize()
        tensor.resize_(1 << 16).normal_()
        graph = save(seen, tensor)
        values = tensor.detach().cpu()
        del tensor
    torch.cuda.synchronize()
    spillway.step()
    graph.backward()
    assert copied.out == 4 * (4096 + (1 << 16))
    assert torch.equal(seen[0].cpu(), values)
    del first
