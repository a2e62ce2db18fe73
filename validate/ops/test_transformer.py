"""nn.TransformerEncoder and nn.MultiheadAttention, also as single inference ops."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("attention_compiles")
ATOL = 1e-5


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("masks", ["", "causal", "padding", "causal padding"])
def test_encoder(device, norm_first, activation, masks):
    layer = nn.TransformerEncoderLayer(
        16, 2, 40, activation=activation, norm_first=norm_first, batch_first=True
    )
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first)
    model.eval()
    x = torch.randn(3, 7, 16)
    options = {}
    if "causal" in masks:
        options["mask"] = nn.Transformer.generate_square_subsequent_mask(7)
    visible = torch.ones(3, 7, dtype=torch.bool)
    if "padding" in masks:
        visible[:, 5:] = False
        options["src_key_padding_mask"] = ~visible
    # With grad enabled the CPU composes the layer of its parts.
    expected = model(x, **options).detach()
    model.to(device)
    moved = {name: value.to(device) for name, value in options.items()}
    with torch.no_grad():
        result = model(x.to(device), **moved).cpu()
    torch.testing.assert_close(result[visible], expected[visible], rtol=0, atol=ATOL)


def _encoder(**options) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(16, 2, 40, batch_first=True)
    return nn.TransformerEncoder(layer, 2, **options).eval()


# Masks of which the last hides a beginning, so that no nested tensor is made of it.
HIDDEN = {
    "ends": [[0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]],
    "the longest": [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1], [0, 0, 0, 1, 1]],
    "none": [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
    "beginnings": [[0, 0, 0, 0, 0], [1, 0, 0, 1, 1], [0, 0, 0, 0, 1]],
}


@pytest.mark.parametrize("with_norm", [False, True])
@pytest.mark.parametrize("name", HIDDEN)
def test_encoder_of_sequences(device, name, with_norm):
    """Their ends are padded with zeros, ahead of a last normalisation."""
    model = _encoder(norm=nn.LayerNorm(16) if with_norm else None)
    x, hidden = torch.randn(3, 5, 16), torch.tensor(HIDDEN[name], dtype=torch.bool)
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=hidden)
        given = x.to(device)
        model.to(device)
        result = model(given, src_key_padding_mask=hidden.to(device))
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=ATOL)
    assert torch.equal(given.cpu(), x)


def test_encoder_without_a_check_of_its_mask(device):
    model = _encoder(mask_check=False)
    x, hidden = torch.randn(3, 5, 16), torch.tensor(HIDDEN["ends"], dtype=torch.bool)
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=hidden)
        model.to(device)
        result = model(x.to(device), src_key_padding_mask=hidden.to(device))
    torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("size", [None, (3, 6, 20)])
@pytest.mark.parametrize("lengths", [(5, 3, 1), (4, 4, 4), (2, 0, 6)])
def test_encoder_of_nested_inputs(device, lengths, size):
    model, parts = _encoder(), [torch.randn(length, 16) for length in lengths]
    with torch.no_grad():
        expected = model(torch.nested.nested_tensor(parts))
        there = torch.nested.nested_tensor([part.to(device) for part in parts])
        result = model.to(device)(there)
    assert result.is_contiguous()
    for mine, reference in zip(result.unbind(), expected.unbind(), strict=True):
        torch.testing.assert_close(mine.cpu(), reference, rtol=0, atol=ATOL)
    torch.testing.assert_close(
        torch.nested.to_padded_tensor(result, 7.0, size).cpu(),
        torch.nested.to_padded_tensor(expected, 7.0, size),
        rtol=0,
        atol=ATOL,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, torch.bool])
def test_padding_of_sequences(device, dtype):
    parts = [torch.randint(9, (n, 3)).to(dtype) for n in (4, 1, 2)]
    expected = torch.nested.nested_tensor(parts).to_padded_tensor(1.0)
    there = torch.nested.nested_tensor([part.to(device) for part in parts])
    assert torch.equal(there.to_padded_tensor(1.0).cpu(), expected)
    for size in ((3, 3, 3), (3, 4)):
        with pytest.raises(RuntimeError) as wanted:
            torch.nested.nested_tensor(parts).to_padded_tensor(1.0, size)
        with pytest.raises(RuntimeError) as found:
            there.to_padded_tensor(1.0, size)
        assert str(found.value).splitlines()[0] == str(wanted.value).splitlines()[0]


def test_masks_that_are_refused(device):
    x, hidden = torch.randn(3, 5, 16), torch.tensor(HIDDEN["beginnings"]) > 0
    for given, mask in (
        (x, hidden),
        (x, hidden.int()),
        (x[0], hidden),
        (x, hidden[:2]),
    ):
        with pytest.raises(RuntimeError) as wanted:
            torch._nested_tensor_from_mask(given, ~mask)
        with pytest.raises(RuntimeError) as found:
            torch._nested_tensor_from_mask(given.to(device), ~mask.to(device))
        assert str(found.value).splitlines()[0] == str(wanted.value).splitlines()[0]


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("padding", [False, True])
def test_self_attention(device, need_weights, average, padding):
    module = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(3, 7, 16)
    hidden = torch.zeros(3, 7, dtype=torch.bool)
    hidden[1, 4:] = True
    options = {"need_weights": need_weights, "average_attn_weights": average}
    mask = hidden if padding else None
    expected = module(x, x, x, key_padding_mask=mask, **options)
    module.to(device)
    y = x.to(device)
    mask = hidden.to(device) if padding else None
    with torch.no_grad():
        result = module(y, y, y, key_padding_mask=mask, **options)
    for value, reference in zip(result, expected, strict=True):
        if reference is None:
            assert value is None
            continue
        torch.testing.assert_close(value.cpu(), reference.detach(), rtol=0, atol=ATOL)


@pytest.mark.parametrize("need_weights", [False, True])
def test_integer_masks_hide(device, need_weights):
    module = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x, hidden = torch.randn(2, 5, 16), torch.tensor([[0, 0, 0, 0, 1]] * 2)

    def attend(there):
        given = x.to(there)
        weights = [p.to(there) for p in module.parameters()]
        mask = hidden.to(there, torch.uint8)
        with torch.no_grad():
            return torch._native_multi_head_attention(
                given, given, given, 16, 2, *weights, mask, need_weights, True, 1
            )[0].cpu()

    torch.testing.assert_close(attend(device), attend("cpu"), rtol=0, atol=ATOL)


@pytest.mark.parametrize("need_weights", [False, True])
def test_scores_beyond_float16(device, need_weights):
    """Products of queries and keys are, their scaled ones are not."""
    module = nn.MultiheadAttention(64, 2, batch_first=True, bias=True).eval().half()
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(64).repeat(3, 1))
        module.in_proj_bias.zero_()
        x = torch.full((1, 4, 64), 50.0, dtype=torch.float16, device=device)
        result, weights = module.to(device)(x, x, x, need_weights=need_weights)
    assert result.isfinite().all()
    if need_weights:
        assert torch.equal(weights, torch.full_like(weights, 0.25))


def test_padding_that_is_nan(device):
    layer = nn.TransformerEncoderLayer(16, 2, 40, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 4, 16)
    x[1, 2:] = torch.nan
    mask = torch.tensor([[False] * 4, [False, False, True, True]])
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=mask)
        found = encoder.to(device)(x.to(device), src_key_padding_mask=mask.to(device))
    torch.testing.assert_close(found.cpu(), expected)
