"""What the installed torch's headers say about an op.

Only generated per-operator headers are read: ``ATen/ops/<op>_{ops,meta,
native}.h`` and the ``DECLARE_DISPATCH`` lines of ``ATen/native``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_DEVICE_SPECIFIC = re.compile(
    r"(?i)sparse|nested|quantized|mkldnn|cuda|cpu|mps|csr|xpu|zerotensor"
)


class SchemaError(Exception):
    """An op table entry that does not fit the installed torch."""


@dataclass(frozen=True)
class Argument:
    """One argument of a schema: its JIT type ("Tensor?", "Scalar") and name."""

    type: str
    name: str

    @property
    def is_tensor(self) -> bool:
        return self.type.startswith("Tensor")

    @property
    def is_number(self) -> bool:
        return self.type in ("Scalar", "Scalar?", "float", "int", "bool", "str")


@dataclass(frozen=True)
class Overload:
    """An aten overload such as ``gt.Scalar_out``."""

    name: str
    cpp_signature: str  # "at::Tensor & (const at::Tensor &, ...)"
    arguments: tuple[Argument, ...]

    @property
    def base(self) -> str:
        return self.name.partition(".")[0]

    @property
    def cpp_name(self) -> str:
        """Name of its struct in ``at::_ops``."""
        return self.name.replace(".", "_")

    @property
    def header(self) -> str:
        """Start of the names of its headers."""
        return f"ATen/ops/{_header_stem(self.base)}"

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if "!" not in a.type or a.name == "self")


class Torch:
    """The headers of one installed torch.

    Args:
        directory: the ``torch`` package directory.
    """

    def __init__(self, directory: Path) -> None:
        self._include = Path(directory) / "include"

    def _read(self, base: str, suffix: str) -> str:
        path = self._include / f"ATen/ops/{_header_stem(base)}_{suffix}.h"
        return path.read_text() if path.exists() else ""

    def overload(self, name: str) -> Overload:
        """Looks an overload up; raises SchemaError if torch has none."""
        base = name.partition(".")[0]
        text = self._read(base, "ops")
        cpp_name = name.replace(".", "_")
        match = re.search(
            rf"struct TORCH_API {cpp_name} {{\s*using schema = (.*?);.*?"
            rf'schema_str = "(.*?)";',
            text,
            re.DOTALL,
        )
        if match is None:
            raise SchemaError(f"torch has no overload {name}")
        signature, schema = match.groups()
        inside = schema[schema.index("(") + 1 : schema.rindex(") ->")]
        arguments = []
        for part in _split(inside):
            if part != "*":
                type_, _, argument = part.partition("=")[0].rpartition(" ")
                arguments.append(Argument(type_, argument))
        return Overload(name, signature, tuple(arguments))

    def meta_class(self, overload: Overload) -> tuple[str, str] | None:
        """(``structured_X``, its base class) with the overload's arguments."""
        signature = overload.cpp_signature
        types = _split(signature[signature.index("(") + 1 : -1])
        wanted = [
            (_normalise(type_), a.name)
            for type_, a in zip(types, overload.arguments, strict=True)
            if a in overload.inputs and a.name != "out"
        ]
        text = self._read(overload.base, "meta")
        for name, base, parameters in re.findall(
            r"struct TORCH_API (structured_\w+) : public ([\w:]+) {.*?"
            r"\bmeta\((.*?)\);\s*};",
            text,
            re.DOTALL,
        ):
            found = [
                (_normalise(part.rpartition(" ")[0]), part.rpartition(" ")[2])
                for part in _split(parameters)
            ]
            if found == wanted:
                return name, base
        return None

    def structured_implementation(self, overload: Overload) -> str | None:
        """ATen's device-generic ``at::native::structured_*`` of the overload."""
        meta = self.meta_class(overload)
        if meta is None:
            return None
        for name, base in re.findall(
            r"struct TORCH_API (structured_\w+) : public at::meta::(\w+) {",
            self._read(overload.base, "native"),
        ):
            if base == meta[0] and not _DEVICE_SPECIFIC.search(name):
                return name
        return None

    def native_function(self, overload: Overload) -> str | None:
        """ATen's exported device-generic function of the overload's signature."""
        wanted = _normalise(overload.cpp_signature)
        candidates = []
        for result, name, parameters in re.findall(
            r"^TORCH_API (.*?) (\w+)\((.*?)\);$",
            self._read(overload.base, "native"),
            re.MULTILINE,
        ):
            types = [
                part.partition("=")[0].rpartition(" ")[0] for part in _split(parameters)
            ]
            if _normalise(
                f"{result} ({', '.join(types)})"
            ) == wanted and not _DEVICE_SPECIFIC.search(name):
                candidates.append(name)
        return min(candidates, key=len, default=None)

    @cached_property
    def _native_headers(self) -> dict[str, str]:
        return {
            path.name: path.read_text()
            for path in sorted((self._include / "ATen/native").glob("*.h"))
        }

    def stub(self, name: str) -> tuple[str, int]:
        """(header, number of parameters beyond the iterator) of a stub."""
        for header, text in self._native_headers.items():
            match = re.search(
                rf"DECLARE_DISPATCH\(\s*((?:(?!DECLARE_DISPATCH).)*?),\s*{name}\s*\)",
                text,
                re.DOTALL,
            )
            if match is None:
                continue
            type_ = match.group(1)
            if "(" not in type_:
                alias = re.search(rf"using {type_}\s*=\s*(.*?);", text, re.DOTALL)
                if alias is None:
                    raise SchemaError(f"{header}: no type {type_}")
                type_ = alias.group(1)
            parameters = type_.partition("*)")[2].strip()[1:-1]
            return f"ATen/native/{header}", len(_split(parameters)) - 1
        raise SchemaError(f"torch has no DispatchStub {name}")


def _header_stem(base: str) -> str:
    """In-place variants are declared with their functional one."""
    dunder = re.fullmatch(r"__i?(\w+)__", base)
    return dunder[1] if dunder else base.removesuffix("_")


def _split(parameters: str) -> list[str]:
    """Splits at the commas outside of brackets."""
    parts, depth, current = [], 0, ""
    for character in parameters:
        depth += (character in "(<[") - (character in ")>]")
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()] if current.strip() else parts


_EQUIVALENT_TYPES = {
    "c10::SymIntArrayRef": "at::IntArrayRef",
    "c10::SymInt": "int64_t",
    "at::OptionalSymIntArrayRef": "at::OptionalIntArrayRef",
    "at::OptionalTensorRef": "conststd::optional<at::Tensor>&",
    "at::OptionalScalarRef": "conststd::optional<at::Scalar>&",
}


def _normalise(signature: str) -> str:
    text = re.sub(r"\s+|::(?=std)", "", signature)
    for symbolic, plain in _EQUIVALENT_TYPES.items():
        text = text.replace(symbolic, plain)
    return text
