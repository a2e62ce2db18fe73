"""scaled_dot_product_attention with one query a head, whose keys may be split."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import LAYOUTS, check
from test_attention import attend, tensors

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
pytestmark = pytest.mark.usefixtures("attention_compiles")

# (batch, heads, key heads, keys, head dimension, of values)
SIZES = [
    (1, 1, 1, 1, 1, 1),
    (2, 3, 3, 17, 24, 24),
    (1, 12, 4, 75, 64, 64),
    (1, 5, 1, 64, 33, 40),
    (2, 8, 2, 65, 128, 128),
    (1, 6, 1, 130, 256, 200),
    # Parts, of which the last one is short.
    (1, 1, 1, 700, 64, 64),
    (1, 4, 2, 1025, 80, 96),
]


def _tensors(batch, heads, key_heads, keys, dim, value_dim):
    return tensors(batch, heads, 1, keys, dim, key_heads, value_dim)


@pytest.mark.parametrize("sizes", SIZES)
def test_sizes(device, sizes):
    check(attend(enable_gqa=True), _tensors(*sizes), device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [SIZES[2], SIZES[7]])
def test_dtypes(device, sizes, dtype):
    check(attend(enable_gqa=True, scale=0.3), _tensors(*sizes), device, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("keys", [19, 600])
def test_layouts(device, keys, layout):
    inputs = _tensors(1, 2, 1, keys, 32, 20)
    check(attend(enable_gqa=True), [layout(x) for x in inputs], device)


def test_heads_side_by_side(device):
    # As projections leave them, and a cache of which a part is filled.
    query, cache = torch.randn(2, 1, 4, 16), torch.randn(2, 2, 90, 16)

    def function(q, kv):
        kv = kv[:, :, 3:71]
        y = attend(enable_gqa=True)(q.transpose(1, 2), kv, kv)
        return y.transpose(1, 2).reshape(2, 1, 64)

    check(function, [query, cache], device)


@pytest.mark.parametrize("keys", [50, 900])
@pytest.mark.parametrize("shape", [(2, 4, 1), (2, 1, 1), (1,)])
def test_masks(device, keys, shape):
    inputs = _tensors(2, 4, 2, keys, 64, 64)
    mask = torch.rand(*shape, keys) > 0.3
    mask[..., : keys // 2] = False  # whole tiles, and a part
    mask[..., -1] = True
    check(
        lambda *t: attend(attn_mask=mask.to(t[0].device), enable_gqa=True)(*t),
        inputs,
        device,
    )
    bias = torch.randn(*shape, keys).masked_fill(~mask, float("-inf"))
    result = attend(enable_gqa=True)
    check(lambda q, k, v: result(q, k, v, bias.to(q.device, q.dtype)), inputs, device)


def test_nothing_is_seen(device):
    query, key, value = (x.to(device) for x in _tensors(1, 2, 2, 300, 64, 64))
    mask = torch.zeros(1, 300, dtype=torch.bool, device=device)
    result = F.scaled_dot_product_attention(query, key, value, mask)
    assert torch.equal(result.cpu(), torch.zeros(1, 2, 1, 64))


def test_causal_sees_the_first_key(device):
    # The mask of is_causal is aligned to the first query and key.
    check(attend(is_causal=True), _tensors(1, 2, 2, 700, 64, 64), device)


def test_repeats_bit_for_bit(device):
    inputs = [x.to(device) for x in _tensors(1, 2, 1, 1500, 64, 64)]
    first, second = (attend(enable_gqa=True)(*inputs).cpu() for _ in range(2))
    assert torch.equal(first, second)
