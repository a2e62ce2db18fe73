"""scaled_dot_product_attention and its gradients, fused and as matrix products."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from against_cpu import FLOATS, LAYOUTS, check
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

HALVES_AND_FLOAT = (torch.float32, torch.float16, torch.bfloat16)
pytestmark = pytest.mark.usefixtures("attention_compiles")


def tensors(batch, heads, queries, keys, dim, key_heads=None, value_dim=None):
    key_heads = key_heads or heads
    return (
        torch.randn(batch, heads, queries, dim),
        torch.randn(batch, key_heads, keys, dim),
        torch.randn(batch, key_heads, keys, dim if value_dim is None else value_dim),
    )


def attend(**options):
    return lambda q, k, v, *mask: F.scaled_dot_product_attention(
        q, k, v, *mask, **options
    )


def is_fused(device, *inputs, dtype=torch.float32, **options):
    moved = [x.to(device, dtype).requires_grad_() for x in inputs]
    node = F.scaled_dot_product_attention(*moved, **options).grad_fn
    return "FusedAttentionOverrideable" in node.name()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1, 2, 1),
        (2, 3, 37, 53, 24),
        (1, 2, 130, 65, 63),
        (1, 2, 20, 150, 128),
        (1, 1, 33, 70, 256),
        (2, 1, 17, 16, 8),
    ],
)
def test_sizes(device, sizes, causal):
    inputs = tensors(*sizes)
    assert is_fused(device, *inputs, is_causal=causal)
    check(attend(is_causal=causal), inputs, device)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dtypes(device, dtype):
    inputs = tensors(2, 2, 19, 35, 40, value_dim=24)
    assert is_fused(device, *inputs, dtype=dtype) == (dtype != torch.float64)
    check(attend(scale=0.3), inputs, device, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(device, layout):
    inputs = tensors(2, 3, 18, 21, 16, value_dim=20)
    check(attend(), [layout(x) for x in inputs], device)


def test_expanded_and_joined_projections(device):
    joined = torch.randn(2, 19, 3 * 48)

    def function(x):
        q, k, v = (y.view(2, 19, 3, 16).transpose(1, 2) for y in x.split(48, dim=2))
        return attend()(q, k, v).transpose(1, 2).reshape(2, 19, 48)

    check(function, [joined], device)
    one = torch.randn(1, 1, 1, 16)
    check(
        lambda x, k: attend()(x.expand(2, 3, 5, 16), k, k),
        [one, joined[0].view(1, 1, -1, 16).expand(2, 3, -1, -1)],
        device,
    )


@pytest.mark.parametrize("pixels", [(5, 7), (4, 8), (3, 1)])
def test_heads_among_an_images_channels(device, pixels):
    def function(x):
        q, k, v = (y.unflatten(1, (3, 20)).flatten(3) for y in x.chunk(3, dim=1))
        return attend()(*(y.transpose(2, 3) for y in (q, k, v))).transpose(2, 3)

    check(function, [torch.randn(2, 180, *pixels)], device)


def test_output_is_laid_out_as_on_the_cpu(device):
    contiguous = tensors(2, 3, 5, 7, 16)
    joined = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in contiguous]
    for inputs in (contiguous, joined, [joined[0], *contiguous[1:]]):
        expected = F.scaled_dot_product_attention(*inputs)
        result = F.scaled_dot_product_attention(*(x.to(device) for x in inputs))
        assert result.stride() == expected.stride()


@pytest.mark.parametrize("dtype", HALVES_AND_FLOAT)
@pytest.mark.parametrize(
    "shape", [(19, 35), (2, 1, 19, 35), (1, 3, 1, 35), (2, 3, 19, 1), (35,), (3, 1, 1)]
)
def test_masks(device, shape, dtype):
    inputs = tensors(2, 3, 19, 35, 16)
    hidden = torch.rand(shape) < 0.4
    bias = torch.randn(shape)
    for mask in (~hidden, bias.masked_fill(hidden, -torch.inf)):
        expanded = mask.expand(2, 3, 19, 35)

        def function(q, k, v, mask=expanded):
            dtype = q.dtype if mask.is_floating_point() else torch.bool
            return attend()(q, k, v, mask.to(q.device, dtype))

        check(function, inputs, device, dtype)


def test_transposed_mask(device):
    inputs = tensors(1, 2, 19, 35, 16)
    mask = torch.randn(1, 2, 35, 19).transpose(2, 3)
    check(lambda q, k, v: attend()(q, k, v, mask.to(q.device, q.dtype)), inputs, device)


@pytest.mark.parametrize("causal", [False, True])
def test_grouped_queries(device, causal):
    inputs = tensors(2, 6, 21, 40, 32, key_heads=2)
    assert is_fused(device, *inputs, enable_gqa=True)
    check(attend(enable_gqa=True, is_causal=causal), inputs, device)


def test_large_scores_and_hidden_rows(device):
    q, k, v = tensors(1, 2, 40, 70, 16)
    check(attend(), [q * 30, k * 30, v], device)
    mask = torch.ones(40, 70, dtype=torch.bool)
    mask[3] = mask[39] = False
    mask[5, :64] = False
    moved = [x.to(device).requires_grad_() for x in (q, k, v)]
    result = F.scaled_dot_product_attention(*moved, mask.to(device))
    assert not result[:, :, [3, 39]].any()
    for gradient in torch.autograd.grad(result.sum(), moved):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4, 8), (2, 2, 0, 4, 8), (2, 2, 3, 0, 8)])
def test_empty(device, sizes):
    inputs = tensors(*sizes)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.OVERRIDEABLE]):
        expected = F.scaled_dot_product_attention(*inputs)
        result = F.scaled_dot_product_attention(*(x.to(device) for x in inputs))
    assert torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("sizes", [(0, 8), (4, 0)])
def test_nothing_to_add_up(device, queries, sizes, causal):
    """The fused form called by its name, which takes no keys and no values."""
    keys, value_dim = sizes
    moved = [
        x.to(device).requires_grad_()
        for x in tensors(2, 2, queries, keys, 8, value_dim=value_dim)
    ]
    result = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(
        *moved, is_causal=causal
    )[0]
    assert result.shape == (2, 2, queries, value_dim) and not result.any()
    for gradient in torch.autograd.grad(result.sum(), moved):
        assert not gradient.any()


@pytest.mark.parametrize(
    "options", [{"attn_mask": "requires grad"}, {"dim": 300}, {"dims": 3}]
)
def test_what_is_not_fused(device, options):
    inputs = tensors(1, 2, 9, 11, options.get("dim", 16))
    if options.get("dims") == 3:
        inputs = [x[0] for x in inputs]
    mask = [torch.randn(9, 11)] if "attn_mask" in options else []
    assert not is_fused(device, *inputs, *mask)
    check(attend(), [*inputs, *mask], device)


def test_chosen_backend(device):
    inputs = tensors(1, 2, 9, 11, 16)
    with sdpa_kernel(SDPBackend.MATH):
        assert not is_fused(device, *inputs)
    for backend in (SDPBackend.OVERRIDEABLE, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            assert is_fused(device, *inputs)
            with pytest.raises(RuntimeError, match="No viable backend"):
                is_fused(device, *inputs, dtype=torch.float64)


def weights_kept(device, p, queries=45, keys=70):
    """The dropped weights themselves: values are the identity."""
    q, k, _ = tensors(2, 2, queries, keys, 16)
    eye = torch.eye(keys).expand(2, 2, keys, keys)
    moved = [x.to(device).requires_grad_() for x in (q, k, eye)]
    result = F.scaled_dot_product_attention(*moved, dropout_p=p)
    plain = torch.softmax(moved[0] @ moved[1].transpose(2, 3) * 0.25, 3)
    return moved, result, plain


def test_dropout(device):
    p = 0.3
    torch.manual_seed(3)
    moved, result, plain = weights_kept(device, p)
    kept = result != 0
    assert abs(kept.float().mean().item() - (1 - p)) < 0.02
    expected = torch.where(kept, plain / (1 - p), 0)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-6)
    # Backward drops the same weights.
    grad = torch.randn_like(result)
    names = zip(moved[:2], torch.autograd.grad(result, moved[:2], grad), strict=True)
    for x, gradient in names:
        (wanted,) = torch.autograd.grad(expected, x, grad, retain_graph=True)
        torch.testing.assert_close(gradient, wanted, rtol=1e-3, atol=1e-5)
    torch.manual_seed(3)
    _, again, _ = weights_kept(device, p)
    assert torch.equal(again != 0, kept)
    _, other, _ = weights_kept(device, p)
    assert not torch.equal(other != 0, kept)


def test_dropout_of_a_checkpoint_with_a_learned_mask(device):
    """Its first run, without gradients, drops what the second does."""
    q = torch.randn(1, 2, 9, 16, device=device)
    eye = torch.eye(9, device=device).expand(1, 2, 9, 9).clone().requires_grad_()
    mask = torch.zeros(9, 9, device=device, requires_grad=True)
    out = checkpoint(
        lambda v, mask: F.scaled_dot_product_attention(q, q, v, mask, dropout_p=0.5),
        eye,
        mask,
        use_reentrant=True,
    )
    out.backward(eye.detach())
    torch.testing.assert_close(eye.grad.transpose(2, 3), out.detach())


def test_lengths_that_kernels_do_not_count(device):
    q = torch.randn(1, 1, 2, 16, device=device)
    k = q[:, :, :1].expand(1, 1, 2**31 + 1, 16)
    with pytest.raises(NotImplementedError, match="supports sizes up to"):
        F.scaled_dot_product_attention(q, k, k)


def test_everything_dropped(device):
    moved, result, _ = weights_kept(device, 1.0)
    assert not result.any()
    for gradient in torch.autograd.grad(result.sum(), moved):
        assert not gradient.any()


def test_memory_is_linear(device):
    inputs = [x.to(device).requires_grad_() for x in tensors(1, 2, 512, 512, 16)]
    torch.opencl.synchronize(device)
    before = torch.opencl.memory_allocated(device)
    torch.opencl.reset_peak_memory_stats(device)
    F.scaled_dot_product_attention(*inputs).sum().backward()
    peak = torch.opencl.max_memory_allocated(device) - before
    assert peak < 2 * 512 * 512 * 4
