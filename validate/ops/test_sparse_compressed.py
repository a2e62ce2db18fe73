"""Compressed sparse tensors (CSR, CSC, BSR, BSC): storage, conversions, products, sums
and gradients, and what COO has in common with them."""

from __future__ import annotations

import pytest
import torch
from against_cpu import check

pytestmark = pytest.mark.filterwarnings("ignore:Sparse ")

_LAYOUTS = {
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((2, 3)),
    "bsc": lambda x: x.to_sparse_bsc((2, 3)),
    "coo": lambda x: x.to_sparse(),
}
_COMPRESSED = [name for name in _LAYOUTS if name != "coo"]


@pytest.fixture(autouse=True)
def _no_fallback():
    torch.opencl.reset_fallback_stats()
    yield
    assert torch.opencl.fallback_stats() == {}


def _matrix(rows=6, columns=9, density=0.4, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator)
    kept = torch.rand(rows, columns, generator=generator) < density
    return (values * 4 * kept).to(dtype)


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout == torch.sparse_coo:
        return [tensor.coalesce().indices(), tensor.coalesce().values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


def _same(result: torch.Tensor, expected: torch.Tensor) -> None:
    assert result.device.type == "opencl"
    assert (result.layout, result.shape) == (expected.layout, expected.shape)
    for ours, theirs in zip(_parts(result), _parts(expected), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("layout", _COMPRESSED)
def test_made_moved_and_printed(device, layout):
    expected = _LAYOUTS[layout](_matrix())
    there = expected.to(device)
    _same(there, expected)
    assert torch.equal(there.cpu().to_dense(), expected.to_dense())
    parts = [part.to(device) for part in _parts(expected)]
    made = torch.sparse_compressed_tensor(
        *parts, expected.shape, layout=expected.layout, check_invariants=True
    )
    for tensor in (made, there.clone(), there.detach(), made * 1, torch.clone(made)):
        _same(tensor, expected)
    assert f"device='{device}'" in repr(there) and "nnz=" in repr(there)
    empty = torch.empty(6, 9, layout=torch.sparse_csr, device=device)
    assert empty._nnz() == 0 and empty.to_dense().sum().item() == 0
    csr = _matrix().to_sparse_csr()
    resized = csr.to(device).clone().resize_(8, 9)
    _same(resized.crow_indices(), csr.clone().resize_(8, 9).crow_indices())


@pytest.mark.parametrize("to", _LAYOUTS)
@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("shape", [(6, 9), (2, 3), (8, 3), (0, 3), (4, 0)])
def test_conversions(device, layout, to, shape):
    dense = _matrix(*shape)
    try:
        start = _LAYOUTS[layout](dense)
        expected = _LAYOUTS[to](start)
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as raised:
            _LAYOUTS[to](_LAYOUTS[layout](dense.to(device)))
        assert str(raised.value).split(":")[0] == str(error).split(":")[0]
        return
    _same(_LAYOUTS[layout](dense.to(device)), start)
    _same(_LAYOUTS[to](start.to(device)), expected)
    _same(_LAYOUTS[to](start.to(device)).to_dense(), dense)


def test_batches_and_other_dtypes(device):
    batch = torch.stack([_matrix(), _matrix().flip(0).roll(1, 1)]).sign()
    batch[1] = batch[0] * 2  # as many entries
    _same(batch.to(device).to_sparse_csr(), batch.to_sparse_csr())
    _same(batch.to_sparse_csr().to(device).to_dense(), batch)
    for dtype in (torch.int64, torch.bool, torch.float16, torch.complex64):
        matrix = _matrix(dtype=dtype)
        _same(matrix.to(device).to_sparse_csr(), matrix.to_sparse_csr())
        _same(matrix.to_sparse_csc().to(device).to_sparse_csr().to_dense(), matrix)


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
@pytest.mark.parametrize("columns", [1, 3, 16, 65, 130])
def test_product_with_dense(device, layout, columns, dtype, index):
    sparse = _LAYOUTS[layout](_matrix(37, 23, dtype=dtype))
    if layout != "coo":
        compressed, plain, values = _parts(sparse)
        sparse = torch.sparse_compressed_tensor(
            compressed.to(index),
            plain.to(index),
            values,
            (37, 23),
            layout=sparse.layout,
        )
    dense = torch.randn(23, columns, dtype=dtype)
    there = sparse.to(device)
    _same(there @ dense.to(device), sparse.to_dense() @ dense)
    strided = torch.randn(columns, 23, dtype=dtype)
    _same(there @ strided.to(device).mT, sparse.to_dense() @ strided.mT)
    left = torch.randn(columns, 37, dtype=dtype)
    _same(left.to(device) @ there, left @ sparse.to_dense())
    bias = torch.randn(columns, dtype=dtype)
    if layout != "coo":
        _same(
            torch.addmm(bias.to(device), there, dense.to(device), beta=0.5, alpha=2),
            torch.addmm(bias, sparse.to_dense(), dense, beta=0.5, alpha=2),
        )
        vector, bias = dense[:, 0], torch.randn(37, dtype=dtype)
        _same(there @ vector.to(device), sparse.to_dense() @ vector)
        _same(
            torch.addmv(bias.to(device), there, vector.to(device), beta=-1, alpha=3),
            torch.addmv(bias, sparse.to_dense(), vector, beta=-1, alpha=3),
        )


@pytest.mark.parametrize("columns", [1, 40])
def test_product_of_long_rows(device, columns):
    dense = torch.zeros(20, 5000)
    dense[3] = torch.randn(5000)
    dense[17, ::2] = torch.randn(2500)
    dense[5, 7] = 1
    other = torch.randn(5000, columns)
    result = dense.to_sparse_csr().to(device) @ other.to(device)
    expected = dense.double() @ other.double()
    torch.testing.assert_close(result.cpu().double(), expected, rtol=1e-5, atol=1e-3)
    assert torch.equal(dense.to_sparse_csr().to(device) @ other.to(device), result)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.int64, torch.complex64]
)
def test_product_dtypes(device, dtype):
    sparse, dense = _matrix(dtype=dtype), _matrix(9, 20, 1, dtype=dtype)
    result = sparse.to_sparse_csr().to(device) @ dense.to(device)
    torch.testing.assert_close(result.cpu(), sparse @ dense)


def test_products_of_sparse(device):
    a, b = _matrix(7, 11), _matrix(11, 5, seed=1)
    for layout in (lambda x: x.to_sparse_csr(), lambda x: x.to_sparse()):
        left, right = layout(a).to(device), layout(b).to(device)
        product = left @ right
        assert product.layout == left.layout
        torch.testing.assert_close(product.to_dense().cpu(), a @ b)
    batch = torch.stack([a, a.flip(0)])
    dense = torch.randn(2, 11, 4)
    _same(torch.bmm(batch.to_sparse().to(device), dense.to(device)), batch @ dense)
    none = torch.zeros(3, 7).to_sparse_csr().to(device)
    assert (none @ a.to_sparse_csr().to(device))._nnz() == 0
    assert torch.equal((none @ a.to(device)).cpu(), torch.zeros(3, 11))
    no_rows = torch.zeros(0, 7).to_sparse_csr().to(device)
    assert (no_rows @ a.to(device)).shape == (0, 11)


def test_sampled_addmm(device):
    for inner in (1, 5, 16, 37, 0):
        pattern = _matrix(7, 11)
        a, b = torch.randn(7, inner), torch.randn(inner, 11)
        arguments = [pattern.to_sparse_csr(), a, b]
        result = torch.sparse.sampled_addmm(
            *[x.to(device) for x in arguments], beta=0.5, alpha=2
        )
        _same(result, torch.sparse.sampled_addmm(*arguments, beta=0.5, alpha=2))


@pytest.mark.parametrize("layout", _COMPRESSED)
def test_values_and_sums(device, layout):
    expected = _LAYOUTS[layout](_matrix())
    there = expected.to(device)
    for function in (
        lambda x, d: x * 2,
        lambda x, d: -x,
        lambda x, d: x.abs().sqrt(),
        lambda x, d: x.sin().relu(),
        lambda x, d: x.sum(),
        lambda x, d: x.clone().zero_(),
        lambda x, d: x.to(torch.float64),
        lambda x, d: d + x if "c" in layout[:1] else x,  # as the CPU: no blocks
        lambda x, d: x.mT.to_dense(),
    ):
        dense = torch.ones(6, 9)
        _same(function(there, dense.to(device)), function(expected, dense))


def test_sums_of_dimensions(device):
    for dtype in (torch.float32, torch.int32):
        expected = _matrix(dtype=dtype).to_sparse_csr()
        there = expected.to(device)
        for dims in (0, 1, (0, 1)):
            _same(
                torch.sum(there, dims, keepdim=True),
                torch.sum(expected, dims, keepdim=True),
            )
    a, b = _matrix().to_sparse_csr(), _matrix(seed=1).to_sparse_csr()
    total = a.to(device) + b.to(device) * 2
    torch.testing.assert_close(total.to_dense().cpu(), a.to_dense() + b.to_dense() * 2)
    product = a.to(device) * torch.ones(6, 9, device=device)
    torch.testing.assert_close(product.to_dense().cpu(), a.to_dense())


@pytest.mark.parametrize(
    "shape, sparse_dims", [((6, 9), 2), ((3, 4, 5), 2), ((3, 4, 5), 3)]
)
@pytest.mark.parametrize("function", [torch.sparse.softmax, torch.sparse.log_softmax])
def test_softmax(device, shape, sparse_dims, function):
    dense = torch.randn(shape) * (torch.rand(shape) < 0.6)
    for dim in range(len(shape)):
        gradients = []
        for place in ("cpu", device):
            sparse = dense.to(place).to_sparse(sparse_dims).requires_grad_()
            result = function(sparse, dim)
            weights = torch.arange(1.0, dense.numel() + 1).view(shape).to(place)
            (result.to_dense() * weights).sum().backward()
            gradients.append((result.detach(), sparse.grad))
        for theirs, ours in zip(*gradients, strict=True):
            torch.testing.assert_close(
                ours.to_dense().cpu(), theirs.to_dense(), rtol=1e-4, atol=1e-4
            )


def test_index_select(device):
    dense = _matrix()
    for dim, index in ((0, [1, 1, 5]), (1, [0, 8, 3]), (1, [])):
        index = torch.tensor(index, dtype=torch.int64)
        result = dense.to_sparse().to(device).index_select(dim, index.to(device))
        torch.testing.assert_close(
            result.to_dense().cpu(), dense.index_select(dim, index)
        )
    with pytest.raises(IndexError, match="out of range for tensor of size 6"):
        dense.to_sparse().to(device).index_select(0, torch.tensor([6], device=device))


@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_gradients_of_products(device, layout):
    matrix = _matrix(7, 11)
    check(
        lambda a, x: torch.sparse.mm(_LAYOUTS[layout](a.detach()), x) * 1.0,
        [matrix, torch.randn(11, 5)],
        device,
        backward=False,
    )
    gradients = []
    for place in ("cpu", device):
        sparse = _LAYOUTS[layout](matrix).to(place).requires_grad_()
        dense = torch.arange(55.0).view(11, 5).sin().to(place).requires_grad_()
        torch.sparse.mm(sparse, dense).pow(2).sum().backward()
        gradients.append((sparse.grad, dense.grad))
    for theirs, ours in zip(*gradients, strict=True):
        _same(ours, theirs)


def test_operands_of_two_devices(device):
    csr = _matrix().to_sparse_csr()
    for matrix in (csr.to(device), csr.to_sparse().to(device)):
        for function in (
            lambda a: a @ torch.ones(9, 2),
            lambda a: torch.sparse.mm(a, torch.ones(9, 2)),
        ):
            with pytest.raises(RuntimeError, match="to be on the same device"):
                function(matrix)
    with pytest.raises(RuntimeError, match="to be on the same device"):
        csr @ torch.ones(9, 2, device=device)


def test_bad_input(device):
    csr = _matrix().to_sparse_csr()
    there = csr.to(device)
    for function in (
        lambda a, place: a @ torch.ones(4, 2, device=place),
        lambda a, place: a @ torch.ones(4, device=place),
        lambda a, place: a @ torch.ones(9, 2, device=place, dtype=torch.float64),
        lambda a, place: torch.ones(6, 8, device=place) + a,
        lambda a, place: torch.sum(a, 1),
        lambda a, place: a.to_sparse_bsr((4, 3)),
        lambda a, place: torch.sparse.sampled_addmm(
            a, torch.ones(6, 2, device=place), torch.ones(3, 9, device=place)
        ),
        lambda a, place: torch.sparse_csr_tensor(
            a.crow_indices(),
            a.col_indices() + 7,
            a.values(),
            check_invariants=True,
            size=a.shape,
        ),
        lambda a, place: torch.sparse_csr_tensor(
            a.crow_indices() + 1,
            a.col_indices(),
            a.values(),
            a.shape,
            check_invariants=True,
        ),
        lambda a, place: torch.sparse_csr_tensor(
            a.crow_indices(),
            a.col_indices().flip(0),
            a.values(),
            a.shape,
            check_invariants=True,
        ),
    ):
        with pytest.raises(RuntimeError) as expected:
            function(csr, "cpu")
        with pytest.raises(RuntimeError) as raised:
            function(there, device)
        assert str(raised.value) == str(expected.value)
    with pytest.raises(NotImplementedError, match="_sparse_mm_reduce_impl"):
        torch.sparse.mm(there, torch.ones(9, 1, device=device), "mean")


def test_unchecked_indices_are_reported(device):
    crow, col, values = (part.to(device) for part in _parts(_matrix().to_sparse_csr()))
    bad = torch.sparse_csr_tensor(
        crow, col + 90, values, (6, 9), check_invariants=False
    )
    with pytest.raises(IndexError, match="out of bounds for dimension 1 with size 9"):
        (bad @ torch.ones(9, 2, device=device)).sum().item()
    factors = torch.ones(6, 2, device=device), torch.ones(2, 9, device=device)
    with pytest.raises(IndexError, match="out of bounds for dimension 1 with size 9"):
        torch.sparse.sampled_addmm(bad, *factors).values().sum().item()
    short = torch.sparse_csr_tensor(
        crow[:4], col, values, (6, 9), check_invariants=False
    )
    with pytest.raises(RuntimeError, match="crow_indices"):
        short @ torch.ones(9, 2, device=device)


def _train(place: torch.device | str, layout: str, is_attention: bool) -> list[float]:
    """Losses of two graph layers: convolutions, or attention over the edges."""
    torch.manual_seed(0)
    adjacency = (torch.rand(24, 24) < 0.2).float() + torch.eye(24)
    features, target = torch.randn(24, 12), torch.randint(0, 3, (24,))
    weights = [torch.randn(12, 16) / 4, torch.randn(16, 3) / 4]
    sources = [torch.randn(16, 2) / 4, torch.randn(3, 2) / 4]
    graph = _LAYOUTS[layout](adjacency / adjacency.sum(1, keepdim=True)).to(place)
    weights = [w.to(place).requires_grad_() for w in weights]
    sources = [w.to(place).requires_grad_() for w in sources]
    features, target = features.to(place), target.to(place)
    optimizer = torch.optim.Adam(weights + sources, lr=0.02)
    edges = (adjacency.to_sparse().indices()).to(place)
    losses = []
    for _ in range(6):
        hidden = features
        for weight, source in zip(weights, sources, strict=True):
            hidden = hidden @ weight
            if is_attention:
                scores = hidden @ source
                score = torch.nn.functional.leaky_relu(
                    scores[edges[0], 0] + scores[edges[1], 1]
                )
                attention = torch.sparse.softmax(
                    torch.sparse_coo_tensor(edges, score, (24, 24), is_coalesced=True),
                    1,
                )
                hidden = torch.sparse.mm(attention, hidden)
            else:
                hidden = torch.sparse.mm(graph, hidden)
            if weight is not weights[-1]:
                hidden = torch.relu(hidden)
        loss = torch.nn.functional.cross_entropy(hidden, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "layout, is_attention", [("csr", False), ("coo", False), ("coo", True)]
)
def test_graph_networks_train(device, layout, is_attention):
    ours, theirs = (_train(place, layout, is_attention) for place in (device, "cpu"))
    assert ours[-1] < ours[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
