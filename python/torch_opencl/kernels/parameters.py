"""Parameter lists of user kernels: ``"T x, float32 y"``."""

from __future__ import annotations

import numbers
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

# Names as in kernels: torch's own. Kernels compute in the type beside it, since
# half types are stored only (backend/common/types.clh).
DTYPES = {
    name: getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32"),
        *("uint64", "int64", "float16", "bfloat16", "float32", "float64"),
    )
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32"}
_PLACEHOLDER = re.compile(r"[A-Z]\w*\Z", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)


@dataclass(frozen=True)
class Parameter:
    """One entry; ``kind`` is a dtype's name or a placeholder such as ``T``."""

    kind: str
    name: str

    @property
    def is_placeholder(self) -> bool:
        return self.kind not in DTYPES


def check_text(value: object, what: str) -> str:
    """``value``, which compilers will read.

    Raises:
        TypeError: it is no str.
        ValueError: it contains a NUL, where C texts end, or is not UTF-8.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{what} contains a NUL at {value.index(chr(0))}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} is not valid text: {error}") from None
    return value


def check_name(value: object, what: str) -> str:
    """``value``, which ``#line`` takes as a file's name.

    Raises:
        TypeError: it is no str.
        ValueError: it has a character that cannot stand there.
    """
    if not check_text(value, what).isprintable() or set(value) & set('"\\'):
        raise ValueError(
            f"{what} is printed in error messages and cannot have quotes, "
            f"backslashes or line breaks, got {value!r}"
        )
    return value


def check_identifier(value: object, what: str) -> str:
    """``value``, a name in OpenCL C.

    Raises:
        TypeError: it is no str.
        ValueError: it is no such name.
    """
    if not _IDENTIFIER.match(check_text(value, what)):
        raise ValueError(f"{what} must be an identifier of OpenCL C, got {value!r}")
    return value


def texts(value: object, what: str) -> tuple[str, ...]:
    """A str, or several, as a tuple.

    Raises:
        TypeError: it is neither.
        ValueError: as :func:`check_text`.
    """
    if isinstance(value, str):
        return (check_text(value, what),)
    if not isinstance(value, Sequence):
        raise TypeError(
            f"{what} must be a str or a sequence of them, not {type(value).__name__}"
        )
    return tuple(check_text(each, f"{what}[{i}]") for i, each in enumerate(value))


def parse(text: str, what: str) -> tuple[Parameter, ...]:
    """The parameters of ``text``.

    Raises:
        TypeError: ``text`` is no str.
        ValueError: an entry is not a type and a name.
    """
    check_text(text, what)
    found = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        words = entry.split()
        if len(words) != 2 or not _IDENTIFIER.match(words[1]):
            raise ValueError(
                f"{what}: expected a type and a name such as 'T x', got {entry!r}"
            )
        kind = _ALIASES.get(words[0], words[0])
        if kind not in DTYPES and not _PLACEHOLDER.match(kind):
            raise ValueError(
                f"{what}: {words[0]!r} of {entry!r} is neither a dtype "
                f"({', '.join(DTYPES)}) nor a placeholder such as T"
            )
        found.append(Parameter(kind, words[1]))
    return tuple(found)


def check_names(name: str, parameters: Sequence[Parameter]) -> None:
    names = [parameter.name for parameter in parameters]
    repeated = sorted({each for each in names if names.count(each) > 1})
    if repeated:
        raise ValueError(f"{name}: parameters of the same name: {repeated}")
    types = {each.kind for each in parameters if each.is_placeholder}
    if hidden := sorted(types & set(names)):
        raise ValueError(f"{name}: parameters named like their types: {hidden}")


def split_arguments(
    name: str,
    arguments: Sequence,
    inputs: Sequence[Parameter],
    outputs: Sequence[Parameter],
) -> tuple[list, list]:
    """Arguments of a call: all inputs, then all outputs or none.

    Raises:
        TypeError: another number of arguments, or one of no supported type or
            layout.
    """
    few, all_ = len(inputs), len(inputs) + len(outputs)
    if len(arguments) not in (few, all_):
        raise TypeError(
            f"{name}: expected {few} arguments (inputs) or {all_} (inputs and "
            f"outputs), got {len(arguments)}"
        )
    for parameter, argument in zip((*inputs, *outputs), arguments, strict=False):
        if not isinstance(argument, torch.Tensor | numbers.Number):
            raise TypeError(
                f"{name}: argument '{parameter.name}' must be a tensor or a number, "
                f"not {type(argument).__name__}"
            )
        check_strided(f"{name}: argument '{parameter.name}'", argument)
    for parameter, argument in zip(outputs, arguments[few:], strict=False):
        if not isinstance(argument, torch.Tensor):
            raise TypeError(f"{name}: output '{parameter.name}' must be a tensor")
    return list(arguments[:few]), list(arguments[few:])


def check_strided(place: str, value: object) -> None:
    """Sparse tensors have no memory of their elements' order.

    Raises:
        TypeError: ``value`` is such a tensor.
    """
    if isinstance(value, torch.Tensor) and value.layout != torch.strided:
        raise TypeError(f"{place} has layout {value.layout}, expected torch.strided")


def number(place: str, value: object, dtype: torch.dtype) -> torch.Tensor:
    """A number as a tensor on the CPU.

    Raises:
        TypeError: ``dtype`` cannot represent it.
    """
    try:
        found = torch.tensor(value, dtype=dtype, device="cpu")
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise TypeError(f"{place} got {value!r}: {error}") from None
    is_float = dtype.is_floating_point
    if not is_float and not isinstance(value, numbers.Integral) and found != value:
        raise TypeError(f"{place} has dtype {dtype} and got {value!r}")
    return found


def device_of(name: str, arguments: Sequence) -> torch.device:
    """The one opencl device of all tensors; numbers on the CPU may join.

    Raises:
        RuntimeError: there is none, or more than one.
    """
    device = None
    for argument in arguments:
        if not isinstance(argument, torch.Tensor):
            continue
        if argument.device.type == "cpu" and argument.dim() == 0:
            continue
        if device is not None and argument.device != device:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least "
                f"two devices, {device} and {argument.device}!"
            )
        device = argument.device
    if device is None or device.type != "opencl":
        raise RuntimeError(
            f"{name}: expected a tensor on an opencl device, got "
            f"{'none' if device is None else device}"
        )
    return device


def resolve(
    name: str, parameters: Sequence[Parameter], arguments: Sequence
) -> dict[str, torch.dtype]:
    """What each placeholder stands for, from the tensors among the arguments.

    A number takes the placeholder's dtype from a tensor, or else its default
    one.

    Raises:
        TypeError: two tensors disagree, or a tensor has not the declared dtype.
    """
    found: dict[str, torch.dtype] = {}
    numbers_: dict[str, object] = {}
    for parameter, argument in zip(parameters, arguments, strict=False):
        if not isinstance(argument, torch.Tensor):
            numbers_.setdefault(parameter.kind, argument)
            continue
        if argument.dtype not in NAMES:
            raise TypeError(
                f"{name}: argument '{parameter.name}' has dtype {argument.dtype}, "
                "which kernels do not have"
            )
        if parameter.is_placeholder:
            expected = found.setdefault(parameter.kind, argument.dtype)
        else:
            expected = DTYPES[parameter.kind]
        if argument.dtype != expected:
            raise TypeError(
                f"{name}: argument '{parameter.name}' has dtype {argument.dtype}, "
                f"expected {expected}"
                + (f" for {parameter.kind}" if parameter.is_placeholder else "")
            )
    for kind, value in numbers_.items():
        if kind not in found and kind not in DTYPES:
            dtype = torch.as_tensor(value).dtype
            if dtype not in NAMES:
                raise TypeError(
                    f"{name}: {kind} would be {dtype} for {value!r}, which kernels "
                    "do not have"
                )
            found[kind] = dtype
    return found


def dtype_of(
    name: str, parameter: Parameter, placeholders: dict[str, torch.dtype]
) -> torch.dtype:
    if not parameter.is_placeholder:
        return DTYPES[parameter.kind]
    if parameter.kind not in placeholders:
        raise TypeError(
            f"{name}: nothing says what {parameter.kind} of output "
            f"'{parameter.name}' is: no input has this type, so give the output"
        )
    return placeholders[parameter.kind]


def typedefs(placeholders: dict[str, torch.dtype]) -> str:
    return "".join(
        f"typedef compute_{NAMES[dtype]} {kind};\n"
        for kind, dtype in sorted(placeholders.items())
    )


def from_line(text: str, file: str) -> str:
    """So that compilers name the user's own lines."""
    return f'\n#line 1 "{file}"\n{text}\n'
