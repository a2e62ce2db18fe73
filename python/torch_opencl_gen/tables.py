"""Op tables into C++: one table row and one registration an op."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import asdict
from pathlib import Path

from .schema import Overload, SchemaError, Torch
from .table import Pointwise, Reduction

_POINTWISE_FILES = 4  # translation units, so that two cores share the work


def load_tables(root: Path) -> tuple[list[Pointwise], list[Reduction]]:
    """The entries of every ``backend/*/ops.py``."""
    pointwise: list[Pointwise] = []
    reductions: list[Reduction] = []
    for path in sorted((root / "backend").glob("*/ops.py")):
        spec = importlib.util.spec_from_file_location(f"ops_{path.parent.name}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        pointwise.extend(getattr(module, "POINTWISE", ()))
        reductions.extend(getattr(module, "REDUCTION", ()))
    return pointwise, reductions


def math_functions(root: Path) -> re.Pattern[str]:
    """Matches a call of any function or macro of the math headers."""
    text = "".join(
        path.read_text()
        for path in sorted((root / "backend/common").glob("*.clh"))
        if path.name not in ("types.clh", "reduce.clh", "panels.clh", "lanes.clh")
        and not path.name.startswith("complex")
    )
    return _functions_of(text)


def _functions_of(text: str) -> re.Pattern[str]:
    names = set(re.findall(r"\b(\w+)\([^;{}()]*\)\s*{", text))
    names |= set(re.findall(r"#\s*define\s+(\w+)", text))
    return re.compile(r"\b(" + "|".join(sorted(names)) + r")\b") if names else None


def _quote(text: str) -> str:
    return json.dumps(text)


class Emitter:
    """Emits the C++ of both tables.

    Args:
        torch: the headers to build against.
        root: the project's root.
    """

    def __init__(self, torch: Torch, root: Path) -> None:
        self._torch = torch
        self._pointwise, self._reductions = load_tables(root)
        self._math = math_functions(root)
        self._complex_math = _functions_of(
            (root / "backend/common/complex_math.clh").read_text()
        )

    def write(self, out: Path, json_path: Path) -> None:
        """Writes every generated source, and the table as JSON."""
        out.mkdir(parents=True, exist_ok=True)
        _write(out / "pointwise_table.cpp", self._pointwise_table())
        for part in range(_POINTWISE_FILES):
            rows = range(part, len(self._pointwise), _POINTWISE_FILES)
            _write(
                out / f"pointwise_register_{part}.cpp",
                self._registrations("pointwise", self._pointwise, rows),
            )
        _write(out / "reduction_table.cpp", self._reduction_table())
        _write(
            out / "reduction_register.cpp",
            self._registrations(
                "reduction", self._reductions, range(len(self._reductions))
            ),
        )
        json_path.parent.mkdir(parents=True, exist_ok=True)
        _write(json_path, json.dumps(self._as_json(), indent=1) + "\n")

    def _as_json(self) -> list[dict[str, object]]:
        entries = []
        for kind, table in (
            ("pointwise", self._pointwise),
            ("reduction", self._reductions),
        ):
            for entry in table:
                fields = {key: value for key, value in asdict(entry).items() if value}
                base = entry.name.partition(".")[0]
                fields.setdefault("opinfo", base)
                entries.append({"kind": kind, "base": base, **fields})
        return entries

    # What an expression may name.

    def _input_names(self, entry: Pointwise, overload: Overload) -> str:
        return entry.inputs or " ".join(
            a.name for a in overload.inputs if a.is_tensor and a.name != "out"
        )

    def _scalar_names(self, entry: Pointwise | Reduction, overload: Overload) -> str:
        inputs = entry.inputs.split() if isinstance(entry, Pointwise) else []
        names = [
            a.name for a in overload.inputs if a.is_number and a.name not in inputs
        ]
        if entry.stub:
            _, count = self._torch.stub(entry.stub)
            if entry.scalars:
                names = entry.scalars.split()
            if count == 0:
                names = []
            elif count != len(names):
                raise SchemaError(
                    f"{entry.name}: {entry.stub} takes {count} numbers, the "
                    f"entry names {names}"
                )
        elif entry.scalars:
            names = entry.scalars.split()
        return " ".join(names)

    def _uses_math(self, *texts: str) -> str:
        found = self._math and any(self._math.search(text) for text in texts)
        return "true" if found else "false"

    # Tables.

    def _pointwise_table(self) -> str:
        rows = []
        for entry in self._pointwise:
            overload = self._torch.overload(entry.name)
            fields = [
                _quote(entry.name),
                _quote(entry.expression),
                _quote(entry.bool_),
                _quote(entry.integral),
                _quote(entry.complex_),
                _quote(self._input_names(entry, overload)),
                _quote(self._scalar_names(entry, overload)),
                self._uses_math(entry.expression, entry.bool_, entry.integral),
                str(bool(self._complex_math.search(entry.complex_))).lower(),
                f"Dtypes::k{(entry.dtypes or 'all').capitalize()}",
                str(entry.vectorizable).lower(),
                f"Clamp::k{(entry.clamp or 'none').capitalize()}",
                str(entry.keeps_numbers).lower(),
                str(entry.checks_scalars).lower(),
                str(entry.divides).lower(),
                str(entry.counts).lower(),
                str(entry.moves).lower(),
            ]
            rows.append(f"    {{{', '.join(fields)}}},\n")
        return (
            '#include "backend/pointwise/pointwise.h"\n\n'
            "namespace torch_opencl::ops {\n\n"
            "const PointwiseOp pointwise_ops[] = {\n"
            + "".join(rows)
            + "};\n\n}  // namespace torch_opencl::ops\n"
        )

    def _reduction_table(self) -> str:
        rows = []
        for entry in self._reductions:
            overload = self._torch.overload(entry.name)
            results = entry.results or (entry.result,)
            texts = (entry.identity, entry.step, entry.combine)
            fields = [
                _quote(entry.name),
                _quote(entry.state),
                *(_quote(text) for text in texts),
                "{" + ", ".join(_quote(result) for result in results) + "}",
                _quote(self._scalar_names(entry, overload)),
                str(entry.vectorizable).lower(),
                _quote(entry.extreme),
                str(entry.sums).lower(),
                str(entry.moments).lower(),
                str(entry.of_floats).lower(),
                self._complex_reduction(entry),
            ]
            rows.append(f"    {{{', '.join(fields)}}},\n")
        return (
            '#include "backend/reduction/reduction.h"\n\n'
            "namespace torch_opencl::ops {\n\n"
            "const ReductionOp reduction_ops[] = {\n"
            + "".join(rows)
            + "};\n\n}  // namespace torch_opencl::ops\n"
        )

    def _complex_reduction(self, entry: Reduction) -> str:
        if isinstance(entry.complex_, tuple):
            texts = ", ".join(_quote(text) for text in entry.complex_)
            return f"Complex::kNumbers, {{{texts}}}"
        return f"Complex::k{(entry.complex_ or 'none').capitalize()}"

    # Registrations.

    def _registrations(
        self, kind: str, table: list[Pointwise] | list[Reduction], rows: range
    ) -> str:
        headers: set[str] = set()
        stubs: list[str] = []
        lines: list[str] = []
        for row in rows:
            entry = table[row]
            if entry.stub:
                header, _ = self._torch.stub(entry.stub)
                headers.add(header)
                stubs.append(
                    f"REGISTER_PRIVATEUSE1_DISPATCH({entry.stub}, "
                    f"(&torch_opencl::ops::{kind.capitalize()}Stub<{row}, "
                    f"decltype({entry.stub})::FnPtr>::call))\n"
                )
            names = self._scalar_names(entry, self._torch.overload(entry.name)).split()
            for name in (entry.name, *entry.also):
                overload = self._torch.overload(name)
                headers.add(f"{overload.header}_ops.h")
                line = self._registration(entry, overload, row, names, headers)
                lines.append(f"  {line};  // {entry.name}\n")
        includes = "".join(f"#include <{header}>\n" for header in sorted(headers))
        return (
            f'#include "backend/{kind}/{kind}.h"\n'
            '#include "cpp/aten/structured.h"\n\n'
            f"{includes}\n"
            "namespace at::native {\n\n"
            + "".join(stubs)
            + "\n}  // namespace at::native\n\n"
            "namespace torch_opencl::ops {\n\n"
            "using namespace torch_opencl::aten;\n\n"
            "template <class Op>\n"
            "using Native =\n"
            "    typename c10::fn_remove_symint<typename Op::schema>::type*;\n\n"
            "TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {\n"
            + "".join(lines)
            + "}\n\n}  // namespace torch_opencl::ops\n"
        )

    def _registration(
        self,
        entry: Pointwise | Reduction,
        overload: Overload,
        row: int,
        scalar_names: list[str],
        headers: set[str],
    ) -> str:
        op = f"at::_ops::{overload.cpp_name}"
        numbers = ", Numbers::kRealAndComplex" if entry.complex_ else ""
        if not entry.stub:
            meta = self._torch.meta_class(overload)
            if meta is None or meta[1] != "TensorIteratorBase":
                raise SchemaError(
                    f"{overload.name} is not structured over a TensorIterator; "
                    "its entry needs a stub"
                )
            headers.add(f"{overload.header}_meta.h")
            mask = sum(
                1 << i
                for i, argument in enumerate(overload.inputs)
                if argument.name in scalar_names
            )
            return (
                f"structured<PointwiseKernel<at::meta::{meta[0]}, {row}, "
                f"{mask}>, {op}{numbers}>(m)"
            )
        headers.add(f"{overload.header}_native.h")
        implementation = self._torch.structured_implementation(overload)
        if implementation is not None and not entry.function:
            return f"structured<at::native::{implementation}, {op}{numbers}>(m)"
        function = entry.function or self._torch.native_function(overload)
        if function is None:
            raise SchemaError(f"ATen exports no function for {overload.name}")
        return (
            f'm.impl("{overload.name}", &WithFallback<{op}, '
            f"static_cast<Native<{op}>>(&at::native::{function}){numbers}>::call)"
        )


def _write(path: Path, text: str) -> None:
    """Writes only what changed, so that make does not rebuild the rest."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
