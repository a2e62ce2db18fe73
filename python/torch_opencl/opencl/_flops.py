"""Operations that an op's definition takes: PyTorch's formulas, and those of fused ops
that ``torch.utils.flop_counter`` does not know. A multiply-add is two."""

from __future__ import annotations

from collections.abc import Callable

import torch

aten = torch.ops.aten


def flops(function, args, kwargs, result) -> float:
    """Of a call of the overload ``function``; 0 where no formula is known."""
    from torch.utils.flop_counter import flop_registry

    packet = function._overloadpacket
    formula: Callable | None = _FUSED.get(packet) or flop_registry.get(packet)
    return float(formula(*args, **kwargs, out_val=result)) if formula else 0.0


def _attention(query, key, value, *args, **kwargs) -> int:
    *batch, queries, size = query.shape
    return 2 * batch[0] * batch[1] * queries * key.shape[-2] * (size + value.shape[-1])


def _attention_backward(grad_out, query, key, value, *args, **kwargs) -> int:
    """The scores once more, and two products for each product."""
    scores = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2]
    return 2 * scores * (3 * query.shape[3] + 2 * value.shape[3])


def _multi_head_attention(query, key, value, embed_dim, *args, **kwargs) -> int:
    if query.is_nested:
        return 0
    batch, queries = query.shape[:2]
    keys = key.shape[1]
    projections = 2 * 2 * (queries + keys) * embed_dim**2
    return batch * (projections + 2 * 2 * queries * keys * embed_dim)


def _encoder_layer(src, embed_dim, *args, **kwargs) -> int:
    if src.is_nested:
        return 0
    hidden = args[12].shape[0]  # ffn_weight_1
    feed_forward = 2 * 2 * src.shape[0] * src.shape[1] * embed_dim * hidden
    return _multi_head_attention(src, src, src, embed_dim) + feed_forward


_FUSED: dict[object, Callable] = {
    aten._scaled_dot_product_fused_attention_overrideable: _attention,
    aten._scaled_dot_product_fused_attention_overrideable_backward: _attention_backward,
    aten._native_multi_head_attention: _multi_head_attention,
    aten._transformer_encoder_layer_fwd: _encoder_layer,
}
