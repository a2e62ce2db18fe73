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
