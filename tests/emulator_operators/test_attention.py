# SPDX-License-Identifier: Apache-2.0
"""The three attention operators that exist on CUDA only, against the CPU's attention."""

import pytest
import torch
import torch.nn.functional as F
from emulated_models import fingerprint
from torch.nn.attention import SDPBackend, sdpa_kernel

FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]


def attend(device, backend, dtype=torch.bfloat16, heads=4, mask=None, **options):
    generator = torch.Generator().manual_seed(1)
    query, key, value = (
        torch.randn(2, h, 16, 8, generator=generator).to(device, dtype).requires_grad_()
        for h in (4, heads, heads)
    )
    if mask is not None:
        mask = mask.to(device, dtype)
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, **options)
    out.float().square().sum().backward()
    return fingerprint([out, query.grad, key.grad, value.grad])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", FUSED)
def test_attention_equals_the_fused_one_of_the_cpu(backend, causal):
    there = attend("cuda", backend, is_causal=causal)
    assert there == attend("cpu", SDPBackend.FLASH_ATTENTION, is_causal=causal)


@pytest.mark.parametrize("backend", [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION])
def test_a_mask_is_added_to_the_scores(backend):
    mask = torch.randn(16, 16, generator=torch.Generator().manual_seed(2))
    assert attend("cuda", backend, mask=mask) == attend("cpu", SDPBackend.FLASH_ATTENTION, mask=mask)


def test_heads_may_share_keys_and_values():
    there = attend("cuda", SDPBackend.FLASH_ATTENTION, torch.float16, heads=2, enable_gqa=True)
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(2, h, 16, 8, generator=generator).half() for h in (4, 2, 2))
    wide = [t.repeat_interleave(2, 1) for t in (key, value)]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        here = F.scaled_dot_product_attention(query, *wide)
    assert there[0] == fingerprint([here])[0]


def gradient_of_a_mask(device, backend):
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(2, 4, 16, 8, generator=generator).to(device) for _ in range(3))
    mask = torch.zeros(2, 4, 16, 16, device=device, requires_grad=True)
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    (out * value).sum().backward()
    return mask.grad.cpu()


def test_a_mask_gets_its_gradient():
    there = gradient_of_a_mask("cuda", SDPBackend.EFFICIENT_ATTENTION)
    here = gradient_of_a_mask("cpu", SDPBackend.MATH)
    assert there.abs().max() > 0
    assert torch.equal(there, here)


@pytest.mark.parametrize("backend", FUSED)
def test_the_backward_drops_what_the_forward_dropped(backend):
    # With unit matrices for values and gradient, the output is the weights, the gradient their transpose.
    query, key = (torch.randn(1, 1, 32, 8, device="cuda", dtype=torch.float16) for _ in range(2))
    value = torch.eye(32, device="cuda", dtype=torch.float16)[None, None].requires_grad_()
    query = F.pad(query, (0, 24))
    key = F.pad(key, (0, 24))
    with sdpa_kernel(backend):
        weights = F.scaled_dot_product_attention(query, key, value, dropout_p=0.5)
    weights.backward(torch.eye(32, device="cuda", dtype=torch.float16)[None, None])
    assert (weights == 0).any()
    assert torch.equal(value.grad, weights.detach().transpose(-2, -1))


def attend_with_dropout(device):
    torch.manual_seed(4)
    return attend(device, [*FUSED, SDPBackend.MATH], torch.float32, dropout_p=0.25)


def test_on_request_dropout_equals_a_cpu_run(elsewhere):
    assert elsewhere(attend_with_dropout, "cuda", rng="cpu") == attend_with_dropout("cpu")
