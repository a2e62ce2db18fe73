"""Inductor's pointwise ops over variables: conversions, lanes, and what no table
holds."""

from __future__ import annotations

import functools
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, IndentedBuffer, OpOverrides
from torch._inductor.utils import (
    generate_assert,
    sympy_index_symbol,
)
from torch._inductor.virtualized import V

from .expressions import (
    ARITHMETIC,
    COMPARISONS,
    DIVISIONS,
    FLOATING,
    FROM_MATH,
    OF_BOOL,
    OF_SCALARS,
    SCALAR_FIRST,
    SPECIAL,
)
from .types import (
    HALVES,
    NotGenerated,
    Text,
    compute_dtype,
    converted,
    literal,
    mask,
    name_of,
    spread,
    type_of,
)


def _dtype_of(argument: Any) -> torch.dtype | None:
    if isinstance(argument, CSEVariable | Text):
        return argument.dtype
    return None


def common_dtype(arguments: tuple[Any, ...]) -> torch.dtype:
    """What the arguments are converted to: numbers take the dtype of the rest."""
    dtypes = [d for d in map(_dtype_of, arguments) if d is not None]
    if dtypes:
        common = functools.reduce(torch.promote_types, map(compute_dtype, dtypes))
        if not common.is_floating_point and any(
            isinstance(a, float) for a in arguments
        ):
            return torch.float32
        return common
    if any(isinstance(a, float) for a in arguments):
        return torch.float32
    return torch.int64


def has_lanes(argument: Any) -> bool:
    return getattr(argument, "lanes", False)


def is_outer(argument: Any) -> bool:
    if isinstance(argument, CSEVariable | Text):
        return getattr(argument, "outer", False)
    return True


def operand(argument: Any, dtype: torch.dtype, lanes: bool) -> str:
    """An argument as a value of ``dtype``, in lanes where they are asked for."""
    source = _dtype_of(argument)
    if source is None:
        text, own_lanes = literal(argument, dtype), False
    else:
        own_lanes = has_lanes(argument)
        text = converted(str(argument), source, dtype, own_lanes)
    return spread(text, compute_dtype(dtype)) if lanes and not own_lanes else text


def expression(
    template: str,
    arguments: tuple[Any, ...],
    dtype: torch.dtype,
    result: torch.dtype | None = None,
    scalars_only: bool = False,
) -> Text:
    """The template over the arguments, which are converted to ``dtype``."""
    lanes = any(map(has_lanes, arguments))
    if lanes and scalars_only:
        raise NotGenerated(template)
    texts = [operand(a, dtype, lanes) for a in arguments]
    zero = operand(0, dtype, lanes)
    text = template.format(*texts, zero=zero)
    return Text(text, result or dtype, lanes, all(map(is_outer, arguments)))


def floating(arguments: tuple[Any, ...]) -> torch.dtype:
    dtype = common_dtype(arguments)
    return dtype if dtype.is_floating_point else torch.float32


def _by_lanes(template: str, arguments: tuple[Any, ...], dtype: torch.dtype) -> Text:
    """By a function that takes vectors only; of scalars it is the first lane."""
    if any(map(has_lanes, arguments)):
        return expression(template, arguments, dtype)
    spreads = [operand(a, dtype, lanes=True) for a in arguments]
    text = f"({template.format(*spreads)}).s0"
    return Text(text, dtype, False, all(map(is_outer, arguments)))


def _floating_op(name: str, template: str):
    def op(*arguments):
        dtype = floating(arguments)
        is_of_math = name in SPECIAL or name in FROM_MATH
        if is_of_math:
            V.kernel.use_math(dtype)
        if name in ("floor", "ceil", "trunc", "round"):
            kept = common_dtype(arguments)
            if not kept.is_floating_point:
                return expression("{0}", arguments, kept)
        if name in SCALAR_FIRST and V.kernel.form.lanes:
            if has_lanes(arguments[0]):
                raise NotGenerated(f"{name} of many orders")
            first = operand(arguments[0], dtype, False)
            text = template.replace("{0}", first).replace("{1}", "{0}")
            return _by_lanes(text, arguments[1:], dtype)
        scalars_only = name in OF_SCALARS
        if is_of_math and V.kernel.form.lanes:
            if scalars_only:
                raise NotGenerated(f"{name} in a kernel of vectors")
            return _by_lanes(template, arguments, dtype)
        return expression(template, arguments, dtype, scalars_only=scalars_only)

    return op


def _arithmetic_op(name: str, of_floating: str | None, of_integers: str):
    def op(*arguments):
        dtype = common_dtype(arguments)
        if dtype == torch.bool and name in OF_BOOL:
            lanes = any(map(has_lanes, arguments))
            return expression(OF_BOOL[name][lanes], arguments, dtype)
        if dtype == torch.bool:
            dtype = torch.int64
        if dtype.is_floating_point:
            if of_floating is None:
                raise NotGenerated(f"{name} of {dtype}")
            return expression(of_floating, arguments, dtype)
        if name in ("abs", "sign") and any(map(has_lanes, arguments)):
            raise NotGenerated(f"{name} of vectors of {dtype}")
        if name in DIVISIONS:
            V.kernel.check_divisor(arguments[1], dtype)
        return expression(of_integers, arguments, dtype)

    return op


def _comparison_op(name: str, operator: str):
    def op(a, b):
        dtype = common_dtype((a, b))
        if has_lanes(a) or has_lanes(b):
            if dtype == torch.bool and name not in ("eq", "ne"):
                a, b = b, a  # true is -1
            text = expression(f"{{0}} {operator} {{1}}", (a, b), dtype)
            return Text(mask(text, dtype), torch.bool, True, text.outer)
        return expression(f"({{0}} {operator} {{1}})", (a, b), dtype, torch.bool)

    return op


def _logical_op(name: str):
    def op(*arguments):
        lanes = any(map(has_lanes, arguments))
        return expression(OF_BOOL[name][lanes], arguments, torch.bool)

    return op


class OpenCLOverrides(OpOverrides):
    """Each op returns a :class:`Text`, or a variable."""

    @staticmethod
    def constant(value, dtype):
        if isinstance(value, sympy.Expr) and not value.is_number:
            return OpenCLOverrides.index_expr(value, dtype)
        dtype = compute_dtype(dtype)
        if isinstance(value, sympy.Expr):
            value = float(value) if dtype.is_floating_point else int(value)
        return Text(literal(value, dtype), dtype, False, True)

    @staticmethod
    def identity(x):
        return expression("{0}", (x,), _dtype_of(x))

    @staticmethod
    def to_dtype(x, dtype, src_dtype=None, use_compute_types=True):
        source, target = _dtype_of(x), compute_dtype(dtype)
        if source is None:
            return OpenCLOverrides.constant(x, dtype)
        lanes = has_lanes(x)
        text = converted(str(x), source, target, lanes)
        if dtype != target and not use_compute_types:
            text = f"round_{'lanes_' if lanes else ''}{name_of(dtype)}({text})"
        return Text(text, target, lanes, is_outer(x))

    @staticmethod
    def to_dtype_bitcast(x, dtype, src_dtype):
        if dtype == src_dtype:
            return OpenCLOverrides.identity(x)
        if has_lanes(x):
            raise NotGenerated("bits of vectors")
        text = operand(x, src_dtype, False)
        if src_dtype in HALVES:
            text = f"bits_{name_of(src_dtype)}({text})"
            src_dtype = torch.uint16
        if dtype in HALVES:
            text = f"value_{name_of(dtype)}(as_ushort({text}))"
        elif torch.bool in (dtype, src_dtype):
            text = f"(({type_of(dtype, False)})({text}))"
        else:
            text = f"as_{type_of(dtype, False)}({text})"
        return Text(text, compute_dtype(dtype), False, is_outer(x))

    @staticmethod
    def where(condition, a, b):
        arguments = (condition, a, b)
        dtype = common_dtype((a, b))
        if dtype == torch.bool:
            text = "(({0} & {1}) | (~{0} & {2}))"
            if not any(map(has_lanes, arguments)):
                text = "({0} ? {1} : {2})"
            return expression(text, arguments, dtype)
        outer = all(map(is_outer, arguments))
        if not any(map(has_lanes, arguments)):
            c, x, y = (
                operand(condition, torch.bool, False),
                *(operand(v, dtype, False) for v in (a, b)),
            )
            return Text(f"({c} ? {x} : {y})", dtype, False, outer)
        x, y = (operand(v, dtype, True) for v in (a, b))
        if not has_lanes(condition):
            c = operand(condition, torch.bool, False)
            return Text(f"({c} ? {x} : {y})", dtype, True, outer)
        c = operand(condition, torch.bool, True)
        return Text(f"pick({c}, {x}, {y})", dtype, True, outer)

    @staticmethod
    def isnan(x):
        return OpenCLOverrides._test("isnan", x)

    @staticmethod
    def isinf(x):
        return OpenCLOverrides._test("isinf", x)

    @staticmethod
    def _test(function, x):
        dtype = _dtype_of(x)
        if not dtype.is_floating_point:
            return Text("false", torch.bool, False, True)
        lanes = has_lanes(x)
        return Text(f"({function}({x}) != 0)", torch.bool, lanes, is_outer(x))

    @staticmethod
    def signbit(x):
        dtype = _dtype_of(x)
        if not dtype.is_floating_point:
            return OpenCLOverrides.lt(x, 0)
        return Text(f"(signbit({x}) != 0)", torch.bool, has_lanes(x), is_outer(x))

    @staticmethod
    def frexp(x):
        if V.kernel.form.lanes:
            raise NotGenerated("frexp in a kernel of vectors")
        kernel, dtype = V.kernel, _dtype_of(x)
        kernel.use_math(dtype)
        exponent = f"frexp_exponent({x})"
        mantissa = f"frexp_mantissa({x})"
        return tuple(
            kernel.cse.generate(kernel.compute, Text(text, of), dtype=of)
            for text, of in ((mantissa, dtype), (exponent, torch.int32))
        )

    @staticmethod
    def ldexp(x, n):
        if has_lanes(x) or has_lanes(n):
            raise NotGenerated("ldexp of vectors")
        dtype = floating((x,))
        text = f"ldexp({operand(x, dtype, False)}, (int)({n}))"
        return Text(text, dtype, False, is_outer(x) and is_outer(n))

    @staticmethod
    def index_expr(expr, dtype):
        # A name of its own dtype: Inductor would take that of indices of elements.
        return V.kernel.named(V.kernel.index_value(expr, dtype))

    value_expr = index_expr

    @staticmethod
    def masked(condition, body, other):
        """The body where the condition holds, ``other`` elsewhere."""
        kernel = V.kernel
        scope = IndentedBuffer()
        with kernel.masked_scope(condition, scope) as lanes_condition:
            result = body()
            if not isinstance(result, CSEVariable):
                result = kernel.cse.generate(kernel.compute, result, dtype=result.dtype)
        dtype = result.dtype
        lanes = has_lanes(result) or has_lanes(condition)
        kind = type_of(dtype, lanes)
        default = operand(other, dtype, lanes)
        variable = kernel.new_variable(dtype, lanes)
        kernel.compute.writeline(f"{kind} {variable} = {default};")
        if lanes_condition:
            # Loads in it look at each lane; nothing else can go wrong there.
            kernel.compute.writeline("{")
            c = operand(condition, torch.bool, True)
            value = operand(result, dtype, True)
            if dtype == torch.bool:
                value = f"(({c} & {value}) | (~{c} & {variable}))"
            else:
                value = f"pick({c}, {value}, {variable})"
        else:
            kernel.compute.writeline(f"if ({operand(condition, torch.bool, False)}) {{")
            value = operand(result, dtype, lanes)
        with kernel.compute.indent():
            kernel.compute.splice(scope)
            kernel.compute.writeline(f"{variable} = {value};")
        kernel.compute.writeline("}")
        return variable

    @staticmethod
    def indirect_indexing(var, size, check=True, wrap_neg=True):
        if generate_assert(check):
            var = V.kernel.safe_index(var, sympy.sympify(size))
        return sympy_index_symbol(str(var))

    @staticmethod
    def _random(function, seed, place, *others, dtype=torch.float32):
        V.kernel.uses_philox = True
        lanes = has_lanes(place)
        if lanes and (others or has_lanes(seed)):
            raise NotGenerated(f"{function} of vectors")
        texts = [operand(seed, torch.int64, False), operand(place, torch.int64, lanes)]
        texts += [operand(each, torch.int64, False) for each in others]
        return Text(f"{function}({', '.join(texts)})", dtype, lanes, False)

    @staticmethod
    def rand(seed, offset):
        return OpenCLOverrides._random("random_uniform", seed, offset)

    @staticmethod
    def randn(seed, offset):
        return OpenCLOverrides._random("random_normal", seed, offset)

    @staticmethod
    def randint64(seed, offset, low, high):
        return OpenCLOverrides._random(
            "random_integer", seed, offset, low, high, dtype=torch.int64
        )

    @staticmethod
    def _to_int(function, x, dtype):
        text = _floating_op(function, FLOATING[function])(x)
        return OpenCLOverrides.to_dtype(text, dtype)

    @staticmethod
    def trunc_to_int(x, dtype):
        return OpenCLOverrides._to_int("trunc", x, dtype)

    @staticmethod
    def ceil_to_int(x, dtype):
        return OpenCLOverrides._to_int("ceil", x, dtype)

    @staticmethod
    def floor_to_int(x, dtype):
        return OpenCLOverrides._to_int("floor", x, dtype)

    @staticmethod
    def round_to_int(x, dtype):
        return OpenCLOverrides._to_int("round", x, dtype)


for _name, _template in (FLOATING | SPECIAL).items():
    setattr(OpenCLOverrides, _name, staticmethod(_floating_op(_name, _template)))
for _name, _texts in ARITHMETIC.items():
    setattr(OpenCLOverrides, _name, staticmethod(_arithmetic_op(_name, *_texts)))
for _name, _operator in COMPARISONS.items():
    setattr(OpenCLOverrides, _name, staticmethod(_comparison_op(_name, _operator)))
for _name in ("logical_and", "logical_or", "logical_xor", "logical_not"):
    setattr(OpenCLOverrides, _name, staticmethod(_logical_op(_name)))
