"""flex_attention, compiled and eager, against the whole matrix of scores on the CPU.

A case has a score_mod and a mask_mod, made for a device and a dtype, which the reference
calls with index tensors that broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from tolerance import assert_matches
from torch.nn.attention.flex_attention import (
    AuxRequest,
    create_block_mask,
    flex_attention,
)

pytestmark = [
    pytest.mark.gpu_class,
    pytest.mark.usefixtures("fresh_inductor", "attention_compiles"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
]


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return (q >= k) & (q - k <= 20)


def blind_rows(b, h, q, k):
    return (q >= k) & (q % 7 != 3)


def of_batch(b, h, q, k):
    return (q + b >= k) & ((k + h) % 3 != 0)


def _no_captures(mask_mod: Callable | None, score_mod: Callable | None = None):
    return lambda move: (score_mod, mask_mod)


def _alibi(move):
    slopes = move(torch.exp2(-torch.arange(1, 5).float()))
    return lambda score, b, h, q, k: score + slopes[h] * (k - q), causal


def _relative_bias(move):
    table = move(torch.randn(4, 200, generator=torch.Generator().manual_seed(3)))
    return lambda score, b, h, q, k: score + table[h, q - k + 99], None


def _document(move):
    documents = move(torch.arange(200) // 23)
    weights = move(torch.linspace(0.5, 1.5, 200))
    return (
        lambda score, b, h, q, k: score * weights[k],
        lambda b, h, q, k: (documents[q] == documents[k]) & (q >= k),
    )


def _prefix(move):
    prefixes = move(torch.tensor([13, 40]))
    return None, lambda b, h, q, k: (q >= k) | (k < prefixes[b])


def soft_cap(score, b, h, q, k):
    return 3 * torch.tanh(score / 3)


def hidden_by_score(score, b, h, q, k):
    return torch.where(q >= k, score, -float("inf"))


@dataclass(frozen=True)
class Case:
    """Functions and sizes.

    Attributes:
        make: given a function that moves captured tensors, returns score_mod and
            mask_mod.
        sizes: batch, heads, queries and dimension.
        keys: batch, heads, keys and dimension of values, where they differ.
        block: the BlockMask's.
        by_batch: whether the mask depends on batch and head.
    """

    make: Callable
    sizes: tuple[int, int, int, int] = (2, 4, 70, 20)
    keys: tuple[int, int, int, int] | None = None
    block: int | tuple[int, int] = 32
    by_batch: bool = False
    dtype: torch.dtype = torch.float32


_CASES = {
    "plain": Case(_no_captures(None), keys=(2, 4, 45, 33)),
    "causal": Case(_no_captures(causal), keys=(2, 4, 97, 20), block=128),
    "window": Case(_no_captures(window), (1, 2, 131, 16), block=(48, 16)),
    "alibi": Case(_alibi, keys=(2, 2, 70, 70)),
    "relative_bias": Case(_relative_bias, (1, 4, 83, 7)),
    "soft_cap": Case(_no_captures(causal, soft_cap), dtype=torch.bfloat16),
    "document": Case(_document, (1, 2, 100, 65)),
    "prefix": Case(_prefix, by_batch=True, dtype=torch.float16),
    "group": Case(_no_captures(causal, soft_cap), (2, 6, 50, 24), (2, 2, 50, 40)),
    "blind_rows": Case(_no_captures(blind_rows), (1, 2, 61, 8)),
    "broadcast": Case(
        _no_captures(of_batch), (3, 2, 40, 12), (1, 2, 60, 12), by_batch=True
    ),
    "hidden_by_score": Case(_no_captures(None, hidden_by_score), (1, 1, 33, 130)),
}


def _inputs(case: Case) -> list[torch.Tensor]:
    batch, heads, queries, dim = case.sizes
    key_batch, key_heads, keys, value_dim = case.keys or case.sizes
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(shape, generator=generator).to(case.dtype)
        for shape in (
            (batch, heads, queries, dim),
            (key_batch, key_heads, keys, dim),
            (key_batch, key_heads, keys, value_dim),
            (batch, heads, queries, value_dim),
            (batch, heads, queries),
        )
    ]


def _gradients(out, logsumexp, inputs) -> list[torch.Tensor]:
    query, key, value, of_out, of_logsumexp = inputs
    # A row that sees nothing has the logsumexp of nothing.
    finite = torch.where(logsumexp == -math.inf, 0, logsumexp)
    total = (out * of_out).sum() + (finite * of_logsumexp).sum()
    return list(torch.autograd.grad(total, (query, key, value)))


def _reference(case: Case, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Output, logsumexp, largest scores and gradients by the definition."""
    dtype = inputs[0].dtype
    score_mod, mask_mod = case.make(
        lambda t: t.to(dtype) if t.is_floating_point() else t
    )
    query, key, value = (t.detach().requires_grad_() for t in inputs[:3])
    group = query.size(1) // key.size(1)
    keys, values = (t.repeat_interleave(group, 1) for t in (key, value))
    scores = query @ keys.transpose(-1, -2) / math.sqrt(query.size(-1))
    places = [
        torch.arange(size).view([-1 if i == d else 1 for i in range(4)])
        for d, size in enumerate(scores.shape)
    ]
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if mask_mod is not None:
        scores = scores.masked_fill(~mask_mod(*places), -math.inf)
    largest, logsumexp = scores.amax(-1), scores.logsumexp(-1)
    weights = torch.exp(
        scores - torch.where(logsumexp == -math.inf, 0, logsumexp)[..., None]
    )
    out = weights @ values
    made = [query, key, value, *inputs[3:]]
    return [out, logsumexp, largest, *_gradients(out, logsumexp, made)]


def _results(case: Case, device, function, inputs, dynamic=None) -> list[torch.Tensor]:
    dtype = inputs[0].dtype
    score_mod, mask_mod = case.make(
        lambda t: t.to(device, dtype) if t.is_floating_point() else t.to(device)
    )
    inputs = [t.to(device) for t in inputs]
    query, key, value = (t.requires_grad_() for t in inputs[:3])
    mask = None
    if mask_mod is not None:
        batch, heads = query.shape[:2] if case.by_batch else (None, None)
        sizes = (query.size(2), key.size(2))
        mask = create_block_mask(
            mask_mod, batch, heads, *sizes, device=device, BLOCK_SIZE=case.block
        )
    out, others = function(
        query,
        key,
        value,
        score_mod=score_mod,
        block_mask=mask,
        enable_gqa=query.size(1) != key.size(1),
        return_aux=AuxRequest(lse=True, max_scores=True),
    )
    return [
        *(out, others.lse, others.max_scores),
        *_gradients(out, others.lse, inputs),
    ]


_NAMES = ("out", "lse", "max_scores", "grad_query", "grad_key", "grad_value")


def _check(case: Case, results: list[torch.Tensor]) -> None:
    inputs = _inputs(case)
    exact = _reference(case, [t.double() for t in inputs])
    baseline = _reference(case, inputs)
    for name, result, wanted, theirs in zip(
        _NAMES, results, exact, baseline, strict=True
    ):
        assert result.shape == wanted.shape
        if name in ("lse", "max_scores"):
            theirs = theirs.float()
        assert_matches(result, wanted, theirs, name)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", _CASES)
def test_compiled(device, name):
    case = _CASES[name]
    compiled = torch.compile(flex_attention, fullgraph=True)
    _check(case, _results(case, device, compiled, _inputs(case)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["causal", "relative_bias", "group"])
def test_eager(device, name):
    case = _CASES[name]
    _check(case, _results(case, device, flex_attention, _inputs(case)))


def _dense(query, key, value, score_mod, block_mask=None):
    places = [
        torch.arange(size).view([-1 if i == d else 1 for i in range(4)])
        for d, size in enumerate((*query.shape[:3], key.shape[2]))
    ]
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.size(-1))
    scores = score_mod(scores, *places)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask(*places), -math.inf)
    return scores.softmax(-1) @ value


def test_views_and_changing_lengths(device):
    """Heads beside each other in memory, as a projection leaves them, in one graph for
    all lengths."""
    compiled = torch.compile(flex_attention, fullgraph=True, dynamic=True)
    for batch, length in ((2, 37), (3, 50)):
        generator = torch.Generator().manual_seed(length)
        packed = torch.randn(batch, length, 3, 2, 16, generator=generator)

        def attend(function, packed):
            parts = packed.detach().requires_grad_()
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            out = function(q, k, v, soft_cap)
            return [out, *torch.autograd.grad(out.square().sum(), parts)]

        results = attend(compiled, packed.to(device))
        exact = attend(_dense, packed.double())
        baseline = attend(_dense, packed)
        for result, wanted, theirs in zip(results, exact, baseline, strict=True):
            assert_matches(result, wanted, theirs)


def test_index_out_of_range(device):
    """Reported where the score is used, and only there."""
    table = torch.randn(40, device=device)
    tensors = [torch.randn(1, 1, 50, 8, device=device) for _ in range(3)]
    compiled = torch.compile(flex_attention, fullgraph=True)

    def biased(score, b, h, q, k):
        return score + table[q - k]

    def near(b, h, q, k):
        return (q >= k) & (q - k < 40)

    with torch.no_grad():
        mask = create_block_mask(near, None, None, 50, 50, device, BLOCK_SIZE=16)
        assert compiled(*tensors, biased, mask).isfinite().all()
        mask = create_block_mask(causal, None, None, 50, 50, device, BLOCK_SIZE=16)
        with pytest.raises(IndexError):
            compiled(*tensors, biased, mask)
            torch.opencl.synchronize(device)


def test_autocast(device):
    tensors = [torch.randn(1, 2, 20, 8, device=device) for _ in range(3)]
    compiled = torch.compile(flex_attention, fullgraph=True)
    with torch.no_grad(), torch.autocast("opencl", torch.float16):
        out = compiled(*tensors)
        assert out.dtype == torch.float16
        assert torch.equal(out, compiled(*(t.half() for t in tensors)))
        eager = flex_attention(*tensors)
    assert eager.dtype == torch.float16
    torch.testing.assert_close(out, eager, rtol=4e-3, atol=4e-3)
