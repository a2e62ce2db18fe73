"""Index expressions of sympy as OpenCL C."""

from __future__ import annotations

import sympy
from torch.utils._sympy.printers import ExprPrinter


class IndexPrinter(ExprPrinter):
    """Integers have the type of the kernel's indices, other numbers are ``real_t``:
    float or, in kernels with tensors of float64, double."""

    def _print_Integer(self, expr: sympy.Integer) -> str:
        value = int(expr)
        return f"{value}l" if abs(value) >= 2**31 else str(value)

    def _print_Float(self, expr: sympy.Float) -> str:
        return f"((real_t){float(expr)!r})"

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        x, divisor = map(self.doprint, expr.args)
        if expr.is_integer is False:
            return f"floor(({x}) / ({divisor}))"
        if expr.args[0].is_nonnegative and expr.args[1].is_positive:
            return f"(({x}) / ({divisor}))"
        return f"floored_quotient((long)({x}), (long)({divisor}))"

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        x, divisor, modulus = expr.args
        text = self.doprint(x)
        if divisor != 1:
            text = f"(({text}) / ({self.doprint(divisor)}))"
        return f"(({text}) % ({self.doprint(modulus)}))"

    def _print_Mod(self, expr: sympy.Expr) -> str:
        a, b = map(self.doprint, expr.args)
        return f"(({a}) % ({b}))"

    def _print_PythonMod(self, expr: sympy.Expr) -> str:
        a, b = map(self.doprint, expr.args)
        return f"floored_rest((long)({a}), (long)({b}))"

    def _print_CleanDiv(self, expr: sympy.Expr) -> str:
        a, b = map(self.doprint, expr.args)
        return f"(({a}) / ({b}))"

    def _extreme(self, expr: sympy.Expr, function: str) -> str:
        kind = "long" if expr.is_integer else "float"
        result, *others = map(self._print, expr.args)
        for other in others:
            result = f"{function}(({kind})({result}), ({kind})({other}))"
        return result

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._extreme(expr, "min")

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._extreme(expr, "max")

    def _print_Abs(self, expr: sympy.Expr) -> str:
        x = self._print(expr.args[0])
        if expr.args[0].is_integer:
            return f"((long)abs((long)({x})))"
        return f"fabs((float)({x}))"

    def _print_Where(self, expr: sympy.Expr) -> str:
        condition, chosen, other = map(self.doprint, expr.args)
        return f"(({condition}) ? ({chosen}) : ({other}))"

    def _print_ToFloat(self, expr: sympy.Expr) -> str:
        return f"((real_t)({self.doprint(expr.args[0])}))"

    def _print_IntTrueDiv(self, expr: sympy.Expr) -> str:
        a, b = map(self.doprint, expr.args)
        return f"((real_t)({a}) / (real_t)({b}))"

    _print_FloatTrueDiv = _print_IntTrueDiv

    def _print_FloatPow(self, expr: sympy.Expr) -> str:
        a, b = map(self.doprint, expr.args)
        return f"pow((real_t)({a}), (real_t)({b}))"

    def _print_PowByNatural(self, expr: sympy.Expr) -> str:
        a, b = map(self.doprint, expr.args)
        return f"whole_power((long)({a}), (long)({b}))"

    def _print_Pow(self, expr: sympy.Expr) -> str:
        base, exponent = expr.args
        if exponent.is_Integer and 0 < exponent <= 8:
            return "(" + " * ".join([f"({self.doprint(base)})"] * int(exponent)) + ")"
        if base.is_integer and exponent.is_integer and exponent.is_nonnegative:
            return self._print_PowByNatural(expr)
        return self._print_FloatPow(expr)

    def _integer_of(self, function: str, expr: sympy.Expr) -> str:
        return f"((long){function}((real_t)({self.doprint(expr.args[0])})))"

    def _print_floor(self, expr: sympy.Expr) -> str:
        return self._integer_of("floor", expr)

    _print_FloorToInt = _print_floor

    def _print_ceiling(self, expr: sympy.Expr) -> str:
        return self._integer_of("ceil", expr)

    _print_CeilToInt = _print_ceiling

    def _print_TruncToInt(self, expr: sympy.Expr) -> str:
        return self._integer_of("trunc", expr)

    def _print_RoundToInt(self, expr: sympy.Expr) -> str:
        return self._integer_of("rint", expr)

    def _print_TruncToFloat(self, expr: sympy.Expr) -> str:
        return f"trunc((real_t)({self.doprint(expr.args[0])}))"

    def _print_RoundDecimal(self, expr: sympy.Expr) -> str:
        number, digits = expr.args
        scale = f"((real_t)1e{int(digits)})"
        return f"(rint((real_t)({self.doprint(number)}) * {scale}) / {scale})"

    def _print_LShift(self, expr: sympy.Expr) -> str:
        a, b = map(self.doprint, expr.args)
        return f"(({a}) << ({b}))"

    def _print_RShift(self, expr: sympy.Expr) -> str:
        a, b = map(self.doprint, expr.args)
        return f"(({a}) >> ({b}))"

    def _print_OpaqueUnaryFn_sqrt(self, expr: sympy.Expr) -> str:
        return f"sqrt((real_t)({self.doprint(expr.args[0])}))"

    def _print_OpaqueUnaryFn_log2(self, expr: sympy.Expr) -> str:
        return f"log2((real_t)({self.doprint(expr.args[0])}))"


print_index = IndexPrinter().doprint
