# SPDX-License-Identifier: Apache-2.0
"""Sparse and nested tensors: results, gradients and in-place forms are the CPU's, bit for bit."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from emulated_models import fingerprint
from torch import nn

warnings.filterwarnings("ignore", message=".*(beta state|prototype stage).*")


def parts(tensor):
    """The strided tensors of which a result is made."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values(), torch.tensor(tensor.is_coalesced())]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.layout is torch.jagged:
        return [tensor.values(), tensor.offsets()]
    return list(tensor.unbind()) if tensor.is_nested else [tensor]


def same_on_both(call):
    """`call(device)` gives tensors: they are on that device, and their bits are equal."""
    there, here = call("cuda"), call("cpu")
    assert len(there) == len(here) > 0
    for a, b in zip(there, here, strict=True):
        assert (a.device.type, a.layout, a.dtype, a.is_nested) == ("cuda", b.layout, b.dtype, b.is_nested)
        assert a.is_nested or a.shape == b.shape
        assert fingerprint(parts(a)) == fingerprint(parts(b))


def dense(device, *shape, seed=1):
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return values.masked_fill(values < 0.2, 0).to(device)


def coo(device, *shape, seed=1):
    return dense(device, *shape, seed=seed).to_sparse()


UNSORTED = torch.tensor([[2, 0, 2, 1], [1, 0, 1, 3]])

COO = {
    "to_dense": lambda s: s.to_dense(),
    "coalesce": lambda s: torch.sparse_coo_tensor(UNSORTED.to(s.device), s.values()[:4], (4, 5)).coalesce(),
    "uncoalesced": lambda s: torch.sparse_coo_tensor(UNSORTED.to(s.device), s.values()[:4], (4, 5)) * 2,
    "add": lambda s: s + s,
    "add to dense": lambda s: torch.ones(4, 5, device=s.device).add_(s, alpha=2),
    "mul": lambda s: s * s,
    "transpose": lambda s: s.t().coalesce(),
    "mm": lambda s: torch.sparse.mm(s, dense(s.device, 5, 3)),
    "mm of two": lambda s: torch.sparse.mm(s, s.t()),
    "addmm": lambda s: torch.sparse.addmm(dense(s.device, 4, 3), s, dense(s.device, 5, 3)),
    "sum": lambda s: torch.sparse.sum(s, 0),
    "softmax": lambda s: torch.sparse.softmax(s, 1),
    "log_softmax": lambda s: torch.sparse.log_softmax(s, 1),
    "mask": lambda s: dense(s.device, 4, 5, seed=2).sparse_mask(s.coalesce()),
    "cat": lambda s: torch.cat([s, s]),
    "index_select": lambda s: s.index_select(0, torch.tensor([2, 0], device=s.device)),
    "unary": lambda s: s.sqrt().neg().tanh(),
    "norm": lambda s: s.norm(),
    "in place": lambda s: s.coalesce().mul_(3).neg_(),
    "clone": lambda s: s.clone(),
    "hybrid": lambda s: s.to_dense().to_sparse(1),
    "zero": lambda s: s.clone().zero_(),
    "csr": lambda s: s.to_sparse_csr(),
}


@pytest.mark.parametrize("call", COO.values(), ids=COO.keys())
def test_coordinates(call):
    same_on_both(lambda device: [call(coo(device, 4, 5))])


COMPRESSED = {
    "to_dense": lambda s: s.to_dense(),
    "values": lambda s: s.values(),
    "add": lambda s: s + s,
    "mul": lambda s: s * 3,
    "matmul": lambda s: s @ torch.ones(8, 2, device=s.device),
    "unary": lambda s: s.sin(),
    "in place": lambda s: s.clone().neg_(),
    "clone": lambda s: s.clone(),
    "to coordinates": lambda s: s.to_sparse(),
}


@pytest.mark.parametrize("call", COMPRESSED.values(), ids=COMPRESSED.keys())
def test_compressed_rows(call):
    same_on_both(lambda device: [call(dense(device, 4, 8).to_sparse_csr())])


@pytest.mark.parametrize(
    "make",
    [lambda t: t.to_sparse_csc(), lambda t: t.to_sparse_bsr((2, 2)), lambda t: t.to_sparse_bsc((2, 2))],
    ids=["csc", "bsr", "bsc"],
)
def test_the_other_compressed_layouts(make):
    same_on_both(lambda device: [make(dense(device, 4, 8)), make(dense(device, 4, 8)).to_dense()])


def test_sampled_products():
    def call(device):
        pattern = dense(device, 4, 4).to_sparse_csr()
        return [torch.sparse.sampled_addmm(pattern, dense(device, 4, 3), dense(device, 3, 4), beta=0.5)]

    same_on_both(call)


def test_out_takes_a_sparse_result():
    def call(device):
        s = coo(device, 4, 5)
        out = torch.zeros(4, 5, device=device).to_sparse()
        torch.add(s, s, out=out)
        return [out]

    same_on_both(call)


def test_a_sparse_tensor_travels():
    s = coo("cpu", 4, 5)
    there = s.to("cuda")
    assert there.is_cuda
    assert torch.equal(there.cpu().to_dense(), s.to_dense())
    assert torch.equal(s.to_sparse_csr().cuda().cpu().to_dense(), s.to_dense())


def test_gradients_of_sparse_products():
    def call(device):
        s = coo(device, 4, 5).requires_grad_()
        d = dense(device, 5, 3).requires_grad_()
        torch.sparse.mm(s, d).square().sum().backward()
        return [s.grad, d.grad]

    same_on_both(call)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.SparseAdam])
def test_an_embedding_with_sparse_gradients_learns_the_same(optimizer):
    def call(device):
        torch.manual_seed(0)
        table = nn.Embedding(20, 4, sparse=True).to(device)
        steps = optimizer(table.parameters(), lr=0.1)
        for seed in range(3):
            words = torch.randint(0, 20, (6,), generator=torch.Generator().manual_seed(seed)).to(device)
            steps.zero_grad()
            table(words).square().sum().backward()
            assert table.weight.grad.is_sparse
            steps.step()
        return [table.weight.grad, table.weight.detach()]

    same_on_both(call)


def test_the_parts_of_a_sparse_tensor_take_device_memory():
    x = torch.eye(1024, device="cuda")
    before = torch.cuda.memory_allocated()
    s = x.to_sparse()
    assert torch.cuda.memory_allocated() - before == 1024 * 4 + 2 * 1024 * 8
    del s
    assert torch.cuda.memory_allocated() == before


def nested(device, *lengths, width=8):
    rows = [dense(device, n, width, seed=n) for n in lengths]
    return torch.nested.nested_tensor(rows, device=device)


NESTED = {
    "to_padded_tensor": lambda n: n.to_padded_tensor(0.5),
    "add": lambda n: n + n,
    "mul by a number": lambda n: n * 2,
    "relu": lambda n: n.relu(),
    "gelu": lambda n: F.gelu(n),
    "softmax": lambda n: n.softmax(-1),
    "linear": lambda n: F.linear(n, dense(n.device, 3, 8)),
    "layer_norm": lambda n: F.layer_norm(n, (8,), *dense(n.device, 2, 8)),
    "matmul": lambda n: n @ n.transpose(1, 2),
    "unbind": lambda n: torch.cat(n.unbind()),
    "in place": lambda n: n.clone().mul_(3),
}


@pytest.mark.parametrize("call", NESTED.values(), ids=NESTED.keys())
def test_nested(call):
    same_on_both(lambda device: [call(nested(device, 3, 5, 2))])


def test_gradients_of_nested_tensors():
    def call(device):
        rows = [dense(device, n, 8, seed=n).requires_grad_() for n in (3, 2)]
        weight = dense(device, 4, 8).requires_grad_()
        whole = torch.nested.as_nested_tensor(rows)
        F.linear(whole, weight).relu().to_padded_tensor(0).square().sum().backward()
        return [weight.grad, *(row.grad for row in rows)]

    same_on_both(call)


def jagged(device, *lengths, dtype=torch.float32):
    rows = [dense(device, n, 8, seed=n).to(dtype) for n in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


JAGGED = {
    "linear": lambda n: F.linear(n, dense(n.device, 3, 8)),
    "to_padded_tensor": lambda n: n.to_padded_tensor(0.5),
    "sum over the ragged dimension": lambda n: n.sum(1),
    "softmax": lambda n: n.softmax(-1),
    "softmax over the ragged dimension": lambda n: n.softmax(1),
    "layer_norm": lambda n: F.layer_norm(n, (8,)),
    "unbind": lambda n: torch.cat(n.unbind()),
    "in place": lambda n: n.clone().mul_(3),
}


@pytest.mark.parametrize("call", JAGGED.values(), ids=JAGGED.keys())
def test_jagged(call):
    same_on_both(lambda device: [call(jagged(device, 3, 5, 2))])


def attended(device, dtype, causal):
    """Attention over sequences of several lengths and over each of them alone: results and gradients."""
    rows = [
        [dense(device, n, 2, 8, seed=n + part).to(dtype).requires_grad_() for n in (5, 3, 6)]
        for part in range(3)
    ]
    joined = [torch.nested.as_nested_tensor(part, layout=torch.jagged).transpose(1, 2) for part in rows]
    together = [t.transpose(0, 1) for t in F.scaled_dot_product_attention(*joined, is_causal=causal).unbind()]
    torch.cat(together).float().square().sum().backward()
    alone, single = [[row.detach().requires_grad_() for row in part] for part in rows], []
    for parts in zip(*alone, strict=True):
        heads = (t.transpose(0, 1)[None] for t in parts)
        single.append(F.scaled_dot_product_attention(*heads, is_causal=causal)[0].transpose(0, 1))
    torch.cat(single).float().square().sum().backward()
    return [
        [*results, *(row.grad for part in leaves for row in part)]
        for results, leaves in ((together, rows), (single, alone))
    ]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_over_sequences_of_several_lengths(dtype, causal):
    together, alone = attended("cuda", dtype, causal)
    assert all(t.is_cuda for t in together)
    assert fingerprint(together) == fingerprint(alone)


def test_packed_attention_draws_its_dropout_again():
    ends = torch.tensor([0, 8, 24], dtype=torch.int32, device="cuda")
    query, key = (torch.randn(24, 1, 16, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    value = torch.ones(24, 1, 16, device="cuda", dtype=torch.bfloat16)
    options = (ends, ends, 16, 16, 0.5, False)
    out, lse, rng, unused, _ = torch.ops.aten._flash_attention_forward(query, key, value, *options, False)
    assert lse.shape == (1, 24)
    grads = [
        torch.ops.aten._flash_attention_backward(out, query, key, value, out, lse, *options, rng, unused)
        for _ in range(2)
    ]
    assert fingerprint(grads[0]) == fingerprint(grads[1])
    # Values of one: what a query keeps of its weights is what comes out, and goes back to the values.
    kept = out[:, 0, 0].float().sum()
    back = torch.ops.aten._flash_attention_backward(
        torch.ones_like(out), query, key, value, out, lse, *options, rng, unused
    )[2]
    torch.testing.assert_close(back[:, 0, 0].float().sum(), kept, rtol=1e-2, atol=0)


def test_a_window_hides_what_is_farther():
    query, key = (torch.randn(1, 6, 1, 8, device="cuda") for _ in range(2))
    value = torch.eye(6, 8, device="cuda")[None, :, None]
    weights = torch.ops.aten._flash_attention_forward(
        query, key, value, None, None, 6, 6, 0.0, True, False, window_size_left=2, window_size_right=0
    )[0][0, :, 0, :6]
    seen = torch.ones(6, 6, dtype=torch.bool).tril().triu(-2)
    assert torch.equal(weights.cpu() > 0, seen)
