"""``out=`` of another dtype than the result, of each overload that takes one.

Most have no name of their own in torch, and so no entry with ``out`` in its database:
gradients, and what functions are composed of. Their arguments are those of the calls
that an op of the database is composed of, forward and backward.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch
from conformance import opinfo
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

_DTYPES = (torch.float16, torch.float64, torch.int32, torch.int64)
_CALLS = 2  # of an overload
# Of values that were rounded to another dtype: what lies elsewhere is far off.
_CLOSE = {"rtol": 0.02, "atol": 1.0, "equal_nan": True, "check_device": False}


def _overloads() -> dict[str, list]:
    """Those of the device that take ``out=``, by the name of the op that returns it."""
    found = defaultdict(list)
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"):
        namespace, _, op = name.partition("::")
        op, _, overload = op.partition(".")
        if namespace == "aten" and overload:
            overload = getattr(getattr(torch.ops.aten, op), overload)
            if any(argument.is_out for argument in overload._schema.arguments):
                found[op].append(overload)
    return found


def _given(schema) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]


class _Calls(TorchDispatchMode):
    """The calls of which the result could be written to ``out=``."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = defaultdict(list)
        self._by_name = _overloads()

    def _overload(self, function):
        name = function._schema.name.removeprefix("aten::")
        for op in (*self._by_name[name], *self._by_name[name.removeprefix("_")]):
            if _given(op._schema) == _given(function._schema):
                return op
        return None

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = tree_map_only(torch.Tensor, torch.clone, (args, kwargs or {}))
        result = function(*args, **(kwargs or {}))
        overload = self._overload(function)
        is_empty = any(tensor.numel() == 0 for tensor in opinfo.tensors(result))
        if overload and not is_empty and len(self.calls[overload]) < _CALLS:
            outs = [tensor.dtype for tensor in opinfo.tensors(result)]
            self.calls[overload].append((*given, outs))
        return result


def calls(op: OpInfo, samples: list[SampleInput]) -> Iterator[tuple]:
    """Overload, arguments and dtypes of results of what ``op`` is composed of."""
    with _Calls() as recorded:
        for sample in samples:
            results = opinfo.tensors(opinfo.call(op, sample))
            losses = [x.abs().sum() for x in results if x.requires_grad]
            if losses:
                sum(losses).backward()
    for overload, found in recorded.calls.items():
        for call in found:
            yield overload, *call


def _outcome(overload, args, kwargs, dtypes, device) -> list[torch.Tensor] | Exception:
    args, kwargs = tree_map_only(
        torch.Tensor, lambda x: x.to(device, copy=True), (args, kwargs)
    )
    names = [a.name for a in overload._schema.arguments if a.is_out]
    outs = [torch.empty(0, dtype=dtype, device=device) for dtype in dtypes]
    try:
        overload(*args, **kwargs, **dict(zip(names, outs, strict=True)))
        return [out.cpu() for out in outs]
    except Exception as error:
        return error


def difference(overload, args, kwargs, dtypes, device, values: bool) -> str:
    """What the device does otherwise than the CPU, or "".

    Errors need not be the same, and the device may lack what the CPU has.
    """
    expected = _outcome(overload, args, kwargs, dtypes, "cpu")
    found = _outcome(overload, args, kwargs, dtypes, device)
    lacks_kernel = isinstance(expected, NotImplementedError)
    lacks_kernel |= isinstance(found, NotImplementedError)
    if isinstance(expected, Exception) or lacks_kernel:
        if isinstance(found, Exception) or lacks_kernel:
            return ""
        return f"takes what the CPU refuses: {expected}"
    if isinstance(found, Exception):
        return f"{type(found).__name__}: {found}"
    try:
        for mine, theirs in zip(found, expected, strict=True):
            assert mine.shape == theirs.shape
            if values:
                torch.testing.assert_close(mine, theirs, **_CLOSE)
    except AssertionError as error:
        return str(error)
    return ""


def differences(
    op: OpInfo, samples: list[SampleInput], device: torch.device, values: bool
) -> Iterator[str]:
    """Of each output in turn, what differs where it is of another dtype."""
    for overload, args, kwargs, dtypes in calls(op, samples):
        for i, own in enumerate(dtypes):
            for dtype in _DTYPES:
                given = [*dtypes[:i], dtype, *dtypes[i + 1 :]]
                if dtype != own and (
                    found := difference(overload, args, kwargs, given, device, values)
                ):
                    yield f"{overload}, output {i} of {own} in {dtype}: {found[:200]}"
