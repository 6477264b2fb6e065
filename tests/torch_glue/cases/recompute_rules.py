# SPDX-License-Identifier: Apache-2.0
"""Each rule of what is recomputed gives the bits of the first time."""

import math

import spillway
import torch
from torch import nn
from torch.nn import functional as F

from cases import case, case_of
from cases.beside_plain import keeping, left, random
from cases.measure import last, same


def gradients(function, inputs, region):
    """Of the inputs, and the loss. Each pass of both kinds begins with the same random numbers."""
    torch.manual_seed(7)
    inputs = [x.detach().requires_grad_() for x in inputs]
    factor = random(1, seed=9).requires_grad_()
    with region:
        loss = (function(*inputs) * factor).sum()  # the product saves the result
    loss.backward()
    return [loss.detach(), factor.grad, *(x.grad for x in inputs)]


def norm_of_llama(x, weight):
    """As models of transformers write it."""
    exact = x.float()
    exact = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * exact.to(x.dtype)


def gelu_written_out(x):
    """As models of transformers write it."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


# Each ends with the operator whose rule it is about; what that needs is saved by something.
RULES = {
    "silu": lambda x, w: F.silu(x * 1),
    "gelu": lambda x, w: F.gelu(x * 1),
    "gelu_of_tanh": lambda x, w: F.gelu(x * 1, approximate="tanh"),
    "mish": lambda x, w: F.mish(x * 1),
    "hardswish": lambda x, w: F.hardswish(x * 1),
    "hardsigmoid": lambda x, w: F.hardsigmoid(x * 1),
    "hardtanh": lambda x, w: F.hardtanh(x * 1, -0.5, 0.25),
    "leaky_relu": lambda x, w: F.leaky_relu(x * 1, 0.2),
    "elu": lambda x, w: F.elu(x * 1, 0.7),
    "softplus": lambda x, w: F.softplus(x * 1, 2, 5),
    "sine": lambda x, w: (x * 1).sin(),
    "cosine": lambda x, w: (x * 1).cos(),
    "gelu_written_out": lambda x, w: gelu_written_out(x @ w),
    "glu": lambda x, w: F.glu(x * 1),
    "swiglu": lambda x, w: F.silu(x @ w) * (x @ w),
    "quotient": lambda x, w: (x @ w) / (w @ x).exp(),
    "scaled": lambda x, w: F.silu(x @ w) * 0.5,
    "scaled_by_what_is_frozen": lambda x, w: w[0].detach() * F.silu(x @ w),
    "quotient_by_what_is_frozen": lambda x, w: F.silu(x @ w) / (w[0].detach() + 3),
    "scaled_in_half_precision": lambda x, w: F.silu((x @ w).bfloat16()) * 0.3,
    "scaled_view": lambda x, w: F.silu(x @ w).view(16, 256) * 0.5,
    "norm_of_llama_with_a_frozen_weight": lambda x, w: norm_of_llama(
        (x @ w).bfloat16(), w[0].detach().bfloat16()
    ),
    "power": lambda x, w: (x @ w).pow(2),
    "layer_norm": lambda x, w: F.layer_norm(x @ w, (64,), w[0], w[1], eps=1e-3),
    "layer_norm_without_weights": lambda x, w: F.layer_norm(x @ w, (64,)),
    "rms_norm": lambda x, w: F.rms_norm(x @ w, (64,), w[0], eps=1e-3),
    "rms_norm_without_weights": lambda x, w: F.rms_norm(x @ w, (64,)),
    "rms_norm_without_eps": lambda x, w: F.rms_norm(x @ w, (64,), w[0]),
    "group_norm": lambda x, w: F.group_norm((x @ w).view(8, 16, 4, 8), 4, w[0, :16], w[1, :16], eps=1e-3),
    "batch_norm": lambda x, w: F.batch_norm(x @ w, None, None, w[0], w[1], training=True, eps=1e-3),
    "batch_norm_in_evaluation": lambda x, w: F.batch_norm(
        x @ w, torch.linspace(-1, 1, 64).cuda(), torch.linspace(1, 2, 64).cuda(), w[0], w[1], eps=1e-3
    ),
    "dropout": lambda x, w: F.dropout(F.silu(x @ w), 0.3),
    "dropout_of_softmax": lambda x, w: F.dropout((x @ w).softmax(-1), 0.3),
    "dropout_of_a_slice_that_lies_otherwise": lambda x, w: F.dropout(F.silu(x @ w).t(), 0.3),
    "tanh": lambda x, w: F.silu(x @ w).tanh(),
    "tanh_in_place": lambda x, w: F.layer_norm(x @ w, (64,)).tanh_(),
    "sigmoid": lambda x, w: F.silu(x @ w).sigmoid(),
    "softmax": lambda x, w: F.silu(x @ w).softmax(-1),
    "softmax_in_single_precision": lambda x, w: F.silu((x @ w).bfloat16()).softmax(0, torch.float32),
    "sum_with_a_number": lambda x, w: F.silu(x @ w) + 1,
    "sum_with_a_number_in_half_precision": lambda x, w: F.silu((x @ w).bfloat16()) + 0.3,
    "relu_of_a_sum_with_a_number_in_place": lambda x, w: (
        F.layer_norm(x @ w, (64,)).add_(0.3, alpha=0.7).relu_()
    ),
    "relu_of_a_difference_in_place": lambda x, w: F.layer_norm(x @ w, (64,)).sub_(F.silu(w @ x)).relu_(),
    "difference": lambda x, w: torch.sub(F.silu(x @ w), F.silu(w @ x), alpha=0.3),
    "difference_with_a_number": lambda x, w: F.silu(x @ w) - 0.3,
    "difference_from_a_number": lambda x, w: 1 - F.silu(x @ w),
    "negative": lambda x, w: -F.silu(x @ w),
    "relu_of_layer_norm": lambda x, w: F.relu(F.layer_norm(x @ w, (64,))),
    "relu_in_place": lambda x, w: F.layer_norm(x @ w, (64,)).relu_(),
    "relu_of_a_sum": lambda x, w: (F.layer_norm(x @ w, (64,)) + F.layer_norm(w @ x, (64,))).relu(),
    "relu_of_a_sum_in_place": lambda x, w: F.layer_norm(x @ w, (64,)).add_(F.silu(w @ x)).relu_(),
    "cast_of_a_norm": lambda x, w: F.layer_norm(x @ w, (64,)).bfloat16(),
    "cast_of_a_parameter": lambda x, w: x.bfloat16(),
    "cast_up": lambda x, w: (x.bfloat16() @ w.bfloat16()).float(),
    "cast_up_of_what_is_remade": lambda x, w: F.silu(x.bfloat16() @ w.bfloat16()).float(),
    "norm_in_single_precision": lambda x, w: norm_of_llama((x @ w).bfloat16(), w[0].bfloat16()),
    "view": lambda x, w: F.silu(x @ w).view(16, 256),
    "transposed": lambda x, w: F.silu(x @ w).t(),
    "part": lambda x, w: F.silu(x @ w)[:, 8:24],
    "max_pool": lambda x, w: F.max_pool2d((x @ w).view(4, 4, 16, 16), 2),
}


def rule_gives_the_same_bits(name):
    function, inputs = RULES[name], [random(64, 64), random(64, 64, seed=1)]
    expected = gradients(function, inputs, keeping())
    kept = last("kept")["offloadable_bytes"]
    for _ in range(2):
        actual = gradients(function, inputs, spillway.recompute())
        assert same(expected, actual)
        released, made = left()
        assert 0 < released <= kept, (released, kept)
        assert made == released, (released, made)


for rule in RULES:
    case_of(f"{rule}_is_recomputed_bit_for_bit", rule_gives_the_same_bits, rule)


@case
def rules_release_all_that_they_are_about():
    whole = 64 * 64 * 4
    for name, least in {
        "dropout": whole + whole // 4,  # and its mask
        "dropout_of_softmax": whole + whole // 4,
        "tanh": whole,
        "sigmoid": whole,
        "softmax": whole,
        "sum_with_a_number": whole,
        "difference": whole,
        "difference_from_a_number": whole,
        "negative": whole,
    }.items():
        gradients(RULES[name], [random(64, 64), random(64, 64, seed=1)], spillway.recompute())
        assert left()[0] >= least, (name, left(), least)


@case
def a_gelu_that_is_written_out_keeps_or_moves_its_input_alone():
    whole = 64 * 64 * 4
    function, inputs = RULES["gelu_written_out"], [random(64, 64), random(64, 64, seed=1)]
    expected = gradients(function, inputs, keeping())
    with spillway.CPUOffload(1.0, tag="moved"):
        for _ in range(3):
            assert same(expected, gradients(function, inputs, spillway.recompute()))
            step = last("moved")
            assert step["left_to_recompute_bytes"] == step["recomputed_bytes"] == 4 * whole, step
            assert step["offloaded_bytes"] >= whole, step
    torch.cuda.synchronize()
    gradients(function, inputs, spillway.recompute())
    assert left()[0] == 4 * whole, left()  # both factors, the tanh, and the product


@case
def a_dropout_of_what_lies_askew_is_kept():
    # A kernel takes fewer elements at once there, and gives them other random numbers.
    gradients(lambda x: F.dropout(x[1:], 0.3), [random(4097)], spillway.recompute())
    assert left() == (0, 0), left()
    gradients(lambda x: F.dropout(x[64:], 0.3), [random(4096)], spillway.recompute())
    assert left()[0] >= 4096 - 64, left()  # the mask


@case
def what_is_multiplied_by_a_frozen_weight_is_released_with_its_product():
    gradients(
        RULES["norm_of_llama_with_a_frozen_weight"],
        [random(64, 64), random(64, 64, seed=1)],
        spillway.recompute(),
    )
    assert left()[0] >= 64 * 64 * (4 + 2), left()  # the cast to single precision, and the product


@case
def batch_norms_of_all_kinds_have_their_bits():
    kinds = [(True, True), (False, True), (True, False), (False, False)]
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for affine, tracks in kinds:
            for train in (True, False):

                def run(region, dtype=dtype, affine=affine, tracks=tracks, train=train):
                    norm = nn.BatchNorm1d(64, affine=affine, track_running_stats=tracks)
                    norm = norm.cuda().to(dtype).train(train)
                    x = random(32, 64, dtype=dtype).requires_grad_()
                    w = random(64, 64, dtype=dtype, seed=1).requires_grad_()
                    with region:
                        loss = (norm(x * 1) @ w).sum()
                    norm.train()(x.detach() + 3)  # moves the running statistics
                    return [*torch.autograd.grad(loss, [x, w]), *norm.buffers()]

                assert same(run(keeping()), run(spillway.recompute())), (dtype, affine, tracks, train)
