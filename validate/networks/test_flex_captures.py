"""Gradients of tensors that score_mod of flex_attention captures, compiled, against the
whole matrix of scores on the CPU."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from tolerance import assert_matches
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

pytestmark = [
    pytest.mark.gpu_class,
    pytest.mark.usefixtures("fresh_inductor", "attention_compiles"),
]


def causal(b, h, q, k):
    return q >= k


def _relative(table, queries, keys):
    return lambda score, b, h, q, k: score + table[h, q - k + keys]


def _clamped(table, queries, keys):
    def biased(score, b, h, q, k):
        return score * (1 + table[h, torch.clamp(q - k, -5, 7) + 5].tanh())

    return biased


def _slopes(table, queries, keys):
    return lambda score, b, h, q, k: score + table[h, 3] * (q - k)


def _of_queries_and_keys(table, queries, keys):
    return lambda score, b, h, q, k: score + table[b, q] - 2 * table[h, k]


def _of_groups(table, queries, keys):
    return lambda score, b, h, q, k: score + table[h, q // 4 * 7 + k // 3]


def _buckets(table, queries, keys):
    """A table of which only what is not masked has a place."""
    buckets = torch.arange(queries, device=table.device) // 3
    return lambda score, b, h, q, k: score + table[h, buckets[q - k]]


def _number(table, queries, keys):
    number = table[0, 0]
    return lambda score, b, h, q, k: score * number


def _matrix(table, queries, keys):
    matrix = table[0, : queries * keys].view(queries, keys)
    return lambda score, b, h, q, k: score + matrix[q, k]


def _narrow(table, queries, keys):
    """Differences of numbers that wrap around."""

    def biased(score, b, h, q, k):
        wrapped = (q * 9).to(torch.int8).to(torch.int32) - (k * 9).to(torch.int8)
        return score + table[h, wrapped % 99]

    return biased


_MASKED = {"buckets"}
_MODS = {
    "relative": _relative,
    "clamped": _clamped,
    "slopes": _slopes,
    "of_queries_and_keys": _of_queries_and_keys,
    "of_groups": _of_groups,
    "buckets": _buckets,
    "number": _number,
    "matrix": _matrix,
    "narrow": _narrow,
}


def _dense(query, key, value, score_mod, mask_mod):
    places = [
        torch.arange(size).view([-1 if i == d else 1 for i in range(4)])
        for d, size in enumerate((*query.shape[:3], key.shape[2]))
    ]
    if mask_mod is not None:
        # Scores that are not seen may have indices beyond a table.
        places[3] = torch.where(mask_mod(*places), places[3], 0)
    group = query.size(1) // key.size(1)
    key, value = (t.repeat_interleave(group, 1) for t in (key, value))
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.size(-1))
    scores = score_mod(scores, *places)
    if mask_mod is not None:
        places[3] = torch.arange(key.size(2))
        scores = scores.masked_fill(~mask_mod(*places), -math.inf)
    return scores.softmax(-1) @ value


def _inputs(device, dtype, sizes) -> list[torch.Tensor]:
    """Query, key, value, a table and the gradient of the result."""
    batch, heads, key_heads, queries, keys, dim = sizes
    shapes = (
        (batch, heads, queries, dim),
        (batch, key_heads, keys, dim),
        (batch, key_heads, keys, dim),
        (heads + batch, queries * keys),
        (batch, heads, queries, dim),
    )
    generator = torch.Generator().manual_seed(queries)
    return [torch.randn(s, generator=generator).to(device, dtype) for s in shapes]


def _gradients(device, dtype, name, sizes, mask_mod) -> list[torch.Tensor]:
    *tensors, grad = _inputs(device, dtype, sizes)
    _, heads, key_heads, queries, keys, _ = sizes
    query, key, value, table = (t.requires_grad_() for t in tensors)
    score_mod = _MODS[name](table, queries, keys)
    if torch.device(device).type == "cpu":
        out = _dense(query, key, value, score_mod, mask_mod)
    else:
        mask = None
        if mask_mod is not None:
            mask = create_block_mask(
                mask_mod, None, None, queries, keys, device, BLOCK_SIZE=16
            )
        compiled = torch.compile(flex_attention, fullgraph=True)
        gqa = heads != key_heads
        out = compiled(query, key, value, score_mod, mask, enable_gqa=gqa)
    return [out, *torch.autograd.grad(out, tensors, grad)]


def _terms_of_number(sizes) -> torch.Tensor:
    """The root of the sum of squares of the terms that its gradient is the sum of."""
    query, key, value, table, grad = _inputs("cpu", torch.float64, sizes)
    numbers = table[0, 0].repeat(sizes[0], sizes[1], *sizes[3:5]).requires_grad_()
    out = _dense(query, key, value, lambda score, *_: score * numbers, None)
    return torch.autograd.grad(out, numbers, grad)[0].norm()


def _check(device, name, sizes, dtype=torch.float32, mask_mod=None) -> list:
    results = _gradients(device, dtype, name, sizes, mask_mod)
    exact = _gradients("cpu", torch.float64, name, sizes, mask_mod)
    baseline = _gradients("cpu", dtype, name, sizes, mask_mod)
    judged = [results, exact, baseline]
    if name == "number":
        # It may be as small as the error of its terms, which it is judged by.
        terms = _terms_of_number(sizes)
        for i, (*others, table) in enumerate(judged):
            judged[i] = [
                *others,
                torch.cat([table.flatten().cpu(), terms.to(table.dtype)[None]]),
            ]
    names = ("out", "query", "key", "value", "table")
    for name, result, wanted, theirs in zip(names, *judged, strict=True):
        assert_matches(result, wanted, theirs, name)
    return results


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", _MODS)
def test_captured_gradients(device, name, caplog):
    caplog.set_level(logging.DEBUG, "torch_opencl.inductor.flex_lowering")
    queries, keys = (int(size) for size in torch.randint(15, 80, (2,)))
    if name in _MASKED:
        keys = queries
    mask_mod = causal if name in _MASKED else None
    sizes = (2, 4, 2, queries, keys, 9)
    results = _check(device, name, sizes, mask_mod=mask_mod)
    assert "by matrix products" not in caplog.text
    again = _gradients(device, torch.float32, name, sizes, mask_mod)
    assert all(map(torch.equal, results, again))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["relative", "slopes"])
def test_with_a_mask(device, name):
    """Blocks that are not computed, short ones, and several work-groups a block."""
    _check(device, name, (1, 2, 2, 83, 83, 20), mask_mod=causal)


def test_float16(device):
    _check(device, "relative", (1, 2, 1, 40, 33, 16), torch.float16)


def test_by_matrix_products(device, caplog):
    """What has no kernel: float64."""
    caplog.set_level(logging.DEBUG, "torch_opencl.inductor.flex_lowering")
    _check(device, "relative", (1, 2, 2, 30, 30, 8), torch.float64)
    assert "flex_attention by matrix products" in caplog.text


def test_changing_lengths(device):
    compiled = torch.compile(flex_attention, fullgraph=True, dynamic=True)
    for queries in (37, 50):
        tensors = [
            torch.randn(shape)
            for shape in (*[(2, 2, queries, 8)] * 3, (2, 2 * queries))
        ]

        def attend(function, tensors, *mask):
            tensors = [t.requires_grad_() for t in tensors]
            score_mod = _relative(tensors[3], *(t.size(2) for t in tensors[:2]))
            out = function(*tensors[:3], score_mod, *mask)
            return [out, *torch.autograd.grad(out.square().sum(), tensors)]

        results = attend(compiled, [t.to(device) for t in tensors])
        exact = attend(_dense, [t.double() for t in tensors], None)
        baseline = attend(_dense, [t.clone() for t in tensors], None)
        for result, wanted, theirs in zip(results, exact, baseline, strict=True):
            assert_matches(result, wanted, theirs)
