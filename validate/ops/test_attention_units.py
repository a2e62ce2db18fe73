"""Attention of 16-bit tensors by a GPU's matrix units, by an emulation of the
instructions that any device can run."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import check, offset, strided
from test_attention import attend, tensors
from test_matrix_units import HALVES, UNITS

pytestmark = [
    pytest.mark.usefixtures("attention_compiles"),
    pytest.mark.filterwarnings("error:.*which uses its matrix units"),
]
# Whose registers hold tiles of 128 dimensions.
OF_LARGE_HEADS = [units for units in UNITS if units != "intel_8"]


@pytest.fixture(autouse=True)
def _only_of_gpus(request, device):
    if not request.config.getoption("gpu_class"):
        pytest.skip("a kernel for GPUs")
    if torch.opencl.get_device_properties(device).platform == "rusticl":
        pytest.skip("Mesa 22.3 compiles it for minutes")
    with torch.backends.opencl.flags():
        yield


def _set(units: str) -> None:
    torch.backends.opencl.solver = f"units_{units}"


def _kernels(function, device) -> set[str]:
    with torch.opencl.profile() as profile:
        function()
        torch.opencl.synchronize(device)
    return {entry.name.split(":")[-1] for entry in profile.kernels}


def _codes(count: int, dim: int) -> torch.Tensor:
    """Rows of +-1, of which no two are the same."""
    bits = torch.arange(count)[:, None] >> torch.arange(dim).remainder(10) & 1
    return (2 * bits - 1).double()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("dim", [24, 64, 100])
@pytest.mark.parametrize("units", UNITS)
def test_exact_weights(device, units, dim, dtype):
    """No fragment is in another's place: each query finds its key, all others have a
    weight of zero."""
    _set(units)
    queries, keys = 75, 150
    found = torch.randperm(keys)[:queries]
    code = _codes(keys, dim)
    q, k = code[found].expand(2, -1, -1), code.expand(2, -1, -1)
    v = torch.randn(2, keys, dim).to(dtype)
    moved = [x.to(device, dtype)[None] for x in (q, k, v)]
    result = F.scaled_dot_product_attention(*moved, scale=100.0)
    assert torch.equal(result[0].cpu(), v[:, found])


@pytest.mark.parametrize("units", UNITS)
def test_which_kernels(device, units):
    _set(units)
    moved = [
        x.to(device, torch.float16).requires_grad_() for x in tensors(1, 2, 20, 33, 64)
    ]

    def step():
        F.scaled_dot_product_attention(*moved).sum().backward()

    names = {name for name in _kernels(step, device) if "attention" in name}
    assert names == {
        "attention_matrix",
        "attention_delta",
        "attention_matrix_grad_query",
        "attention_matrix_grad_key_value",
    }


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(1, 2, 65, 70, 64), (2, 1, 130, 97, 31)])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("units", UNITS)
def test_sizes(device, units, dtype, sizes, causal):
    _set(units)
    check(attend(is_causal=causal), tensors(*sizes), device, dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("units", OF_LARGE_HEADS)
def test_large_heads(device, units, causal):
    _set(units)
    inputs = tensors(1, 2, 66, 70, 128, value_dim=84)
    check(attend(is_causal=causal), inputs, device, torch.float16)


@pytest.mark.parametrize("layout", [offset, strided])
@pytest.mark.parametrize("units", ["sm_80", "intel_8"])
def test_layouts(device, units, layout):
    _set(units)
    inputs = [layout(x) for x in tensors(2, 3, 18, 21, 36, value_dim=20)]
    check(attend(), inputs, device, torch.float16)


def test_expanded_and_joined_projections(device):
    _set("gfx11")
    joined = torch.randn(2, 40, 3 * 96)

    def function(x):
        q, k, v = (y.view(2, 40, 3, 32).transpose(1, 2) for y in x.split(96, dim=2))
        return attend()(q, k, v).transpose(1, 2).reshape(2, 40, 96)

    check(function, [joined], device, torch.bfloat16)


@pytest.mark.parametrize("units", ["gfx12", "sm_80", "intel_16"])
@pytest.mark.parametrize("kind", ["bool", "float", "hidden rows"])
def test_masks(device, kind, units):
    _set(units)
    hidden = torch.rand(2, 1, 40, 67) < 0.4
    if kind == "hidden rows":
        hidden[:, :, [3, 39]] = True
    mask = torch.randn(1, 3, 40, 1).masked_fill(hidden, -torch.inf)

    def function(q, k, v):
        if kind == "bool":
            return attend(attn_mask=~hidden.to(q.device))(q, k, v)
        return attend(attn_mask=mask.to(q.device, q.dtype))(q, k, v).nan_to_num(0)

    check(
        function,
        tensors(2, 3, 40, 67, 24),
        device,
        torch.float16,
        backward=kind != "hidden rows",
    )


@pytest.mark.parametrize("units", ["gfx11", "sm_80"])
def test_grouped_queries(device, units):
    _set(units)
    inputs = tensors(2, 6, 21, 40, 32, key_heads=2)
    check(attend(enable_gqa=True, is_causal=True), inputs, device, torch.float16)


@pytest.mark.parametrize("p", [0.3, 1.0])
@pytest.mark.parametrize("units", ["gfx11", "sm_80", "intel_16"])
def test_dropout_is_that_of_other_kernels(device, units, p):
    """Of the same seed the same elements are dropped, forward and backward."""
    inputs = [x.to(device, torch.float16) for x in tensors(1, 2, 70, 90, 40)]
    weight = torch.randn(1, 2, 70, 40, device=device, dtype=torch.float16)

    def step(solver):
        torch.backends.opencl.solver = solver
        torch.manual_seed(7)
        moved = [x.detach().requires_grad_() for x in inputs]
        out = F.scaled_dot_product_attention(*moved, dropout_p=p)
        return out, *torch.autograd.grad((out * weight).sum(), moved)

    for expected, result in zip(step(""), step(f"units_{units}"), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-2, atol=4e-3)


def test_large_and_special_scores(device):
    _set("sm_80")
    q, k, v = tensors(1, 2, 40, 70, 16)
    check(attend(), [q * 30, k * 30, v], device, torch.bfloat16)
    k[0, 0, 5, 3] = float("nan")
    check(attend(), [q, k, v], device, torch.float16, backward=False)


def test_float_is_computed_in_float(device):
    _set("gfx11")
    check(attend(), tensors(1, 2, 40, 70, 64), device)
