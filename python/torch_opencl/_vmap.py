"""Batching rules of the device's ops that torch has none for: what ``torch.vmap`` does
of them. Its dimension joins that of the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

_VMAP_MODE = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchVmapMode)
_library = torch.library.Library("aten", "IMPL")
_attention = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
_attention_backward = (
    torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
)


def install() -> None:
    for op, rule in (
        (_attention, _batched_attention),
        (_attention_backward, _batched_attention_backward),
    ):
        torch.library.register_vmap(op.default.name(), rule)
    _library.impl(_attention.default, _attention_in_vmap, "FuncTorchVmapMode")


def _join(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """(batch, ...), with vmap's dimension at ``dim``, as (size * batch, ...)."""
    tensor = tensor.unsqueeze(0) if dim is None else tensor.movedim(dim, 0)
    return tensor.expand(size, *tensor.shape[1:]).flatten(0, 1)


def _join_mask(mask: Tensor | None, dim: int | None, size: int, batch: int):
    """Of what broadcasts to (batch, heads, queries, keys)."""
    if mask is None:
        return None
    mask = mask.unsqueeze(0) if dim is None else mask.movedim(dim, 0)
    while mask.dim() < 5:
        mask = mask.unsqueeze(1)
    if mask.shape[:2] == (1, 1):
        return mask.squeeze(0)
    return mask.expand(size, batch, *mask.shape[2:]).flatten(0, 1)


def _batch(query: Tensor, dim: int | None) -> int:
    return query.shape[0 if dim is None or dim > 0 else 1]


def _split(tensor: Tensor | None, size: int) -> Tensor | None:
    return None if tensor is None else tensor.unflatten(0, (size, -1))


def _dims(tensors) -> tuple[int | None, ...]:
    return tuple(0 if isinstance(tensor, Tensor) else None for tensor in tensors)


def _attention_in_vmap(
    query, key, value, attn_bias=None, dropout_p=0.0, *others, **scale
):
    """At each level of vmap, batched operands or not: for ``randomness``."""
    if dropout_p > 0:
        vmap = retrieve_current_functorch_interpreter()
        if vmap.randomness() == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please "
                "either use the 'same' or 'different' randomness flags on vmap or "
                "perform the randomness operation out of vmap"
            )
        levels = map(torch._C._functorch.maybe_get_level, (query, key, value))
        if vmap.randomness() == "different" and vmap.level() not in levels:
            query = torch._C._functorch._add_batch_dim(
                query.expand(vmap.batch_size(), *query.shape), 0, vmap.level()
            )
    with torch._C._ExcludeDispatchKeyGuard(_VMAP_MODE):
        return _attention(query, key, value, attn_bias, dropout_p, *others, **scale)


def _check_randomness(info, dropout_p: float) -> None:
    if dropout_p > 0 and info.randomness == "same":
        raise NotImplementedError(
            "scaled_dot_product_attention with dropout in torch.vmap of randomness "
            "'same' is not implemented for the opencl device; use 'different', or "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
        )


def _batched_attention(
    info, in_dims, query, key, value, attn_bias=None, dropout_p=0.0, *others, **scale
):
    _check_randomness(info, dropout_p)
    size = info.batch_size
    joined = [
        _join(tensor, dim, size)
        for tensor, dim in zip((query, key, value), in_dims, strict=False)
    ]
    mask_dim = in_dims[3] if len(in_dims) > 3 else None
    mask = _join_mask(attn_bias, mask_dim, size, _batch(query, in_dims[0]))
    result = _attention(*joined, mask, dropout_p, *others, **scale)
    out, logsumexp = (_split(tensor, size) for tensor in result[:2])
    # The seeds are those of all samples.
    return (out, logsumexp, *result[2:]), (0, 0, *[None] * 7)


def _batched_attention_backward(
    info, in_dims, grad_out, query, key, value, attn_bias, mask, out, logsumexp, *others,
    **scale,
):  # fmt: skip
    size = info.batch_size
    arguments = (grad_out, query, key, value, attn_bias, mask, out, logsumexp, *others)
    dropout_p = others[4]
    if dropout_p > 0 and in_dims[7] is None:
        # Rows of a joined batch would draw other dropout than the forward did.
        samples = [
            _attention_backward(
                *(
                    argument.select(dim, sample) if isinstance(dim, int) else argument
                    for argument, dim in zip(arguments, in_dims, strict=True)
                ),
                **scale,
            )
            for sample in range(size)
        ]
        gradients = tuple(
            None if parts[0] is None else torch.stack(parts)
            for parts in zip(*samples, strict=True)
        )
        return gradients, _dims(gradients)
    tensors = (grad_out, query, key, value)
    joined = [
        _join(tensor, dim, size) for tensor, dim in zip(tensors, in_dims, strict=False)
    ]
    bias = _join_mask(attn_bias, in_dims[4], size, _batch(query, in_dims[1]))
    saved = (_join(out, in_dims[6], size), _join(logsumexp, in_dims[7], size))
    result = _attention_backward(*joined, bias, mask, *saved, *others, **scale)
    gradients = tuple(_split(gradient, size) for gradient in result)
    return gradients, _dims(gradients)
