"""Tables of Inductor's pointwise ops: each is an expression of OpenCL C.

The functions are those of backend/common/compiled.clh, which are overloaded, and of
math.clh, which eager's kernels use too and which serve one floating type a program.
"""

from __future__ import annotations

_SAME_NAMES = (
    *("exp2", "expm1", "log2", "log10", "log1p", "sqrt", "rsqrt", "erfc"),
    *("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
)
# Of floating arguments, {0} and so on. Integers are converted to float32 first.
FLOATING = {
    "exp": "whole_exp({0})",
    "erf": "whole_erf({0})",
    "tanh": "whole_tanh({0})",
    "log": "log({0})",
    "sin": "sine({0})",
    "cos": "cosine({0})",
    "tan": "tangent({0})",
    "sigmoid": "(1 / (1 + whole_exp(-{0})))",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "trunc": "trunc({0})",
    "round": "rint({0})",
    "reciprocal": "(1 / {0})",
    "hypot": "hypot({0}, {1})",
    "atan2": "atan2({0}, {1})",
    "copysign": "copysign({0}, {1})",
    "nextafter": "nextafter({0}, {1})",
    "truediv": "({0} / {1})",
    "div_rn": "({0} / {1})",
    "int_truediv": "({0} / {1})",
    "fma": "fma({0}, {1}, {2})",
    "mul_rn": "({0} * {1})",
    **{name: f"{name}({{0}})" for name in _SAME_NAMES},
}
# Of math.clh.
SPECIAL = {
    "lgamma": "log_gamma({0})",
    "erfinv": "erf_inverse({0})",
    "erfcx": "erfc_scaled({0})",
    "ndtri": "normal_quantile({0})",
    "log_ndtr": "log_normal_cdf({0})",
    "ndtr": "(erfc(-{0} * SQRT_HALF) / 2)",
    "digamma": "digamma({0})",
    "polygamma": "polygamma({0}, {1})",
    "zeta": "zeta({0}, {1})",
    "igamma": "gamma_lower({0}, {1})",
    "igammac": "gamma_upper({0}, {1})",
    "gammainc": "gamma_lower({0}, {1})",
    "gammaincc": "gamma_upper({0}, {1})",
    "i0": "bessel_i0({0})",
    "i0e": "bessel_i0_scaled({0})",
    "i1": "bessel_i1({0})",
    "i1e": "bessel_i1_scaled({0})",
    "modified_bessel_i0": "bessel_i0({0})",
    "modified_bessel_i1": "bessel_i1({0})",
    "modified_bessel_k0": "bessel_k0({0})",
    "modified_bessel_k1": "bessel_k1({0})",
    "scaled_modified_bessel_k0": "bessel_k0_scaled({0})",
    "scaled_modified_bessel_k1": "bessel_k1_scaled({0})",
    "bessel_j0": "bessel_j0({0})",
    "bessel_j1": "bessel_j1({0})",
    "bessel_y0": "bessel_y0({0})",
    "bessel_y1": "bessel_y1({0})",
    "spherical_bessel_j0": "spherical_bessel_j0({0})",
    "airy_ai": "airy_ai({0})",
    "hermite_polynomial_h": "hermite_h({0}, {1})",
    "hermite_polynomial_he": "hermite_he({0}, {1})",
    "laguerre_polynomial_l": "laguerre_l({0}, {1})",
    "legendre_polynomial_p": "legendre_p({0}, {1})",
    **{
        f"{shifted}chebyshev_polynomial_{kind}": f"chebyshev_{kind}({x}, {{1}})"
        for shifted, x in (("", "{0}"), ("shifted_", "2 * {0} - 1"))
        for kind in "tuvw"
    },
}
# They take scalars only, whatever the lanes.
OF_SCALARS = {"igamma", "igammac", "gammainc", "gammaincc", "nextafter"} | {
    name for name in SPECIAL if "polynomial" in name
}
# The first argument is a scalar, whatever the lanes.
SCALAR_FIRST = {"polygamma"}
# In these the driver's function is not always as good as ours.
FROM_MATH = {"sin", "cos", "tan"}
# Of arguments of one dtype: floating text, integral text.
ARITHMETIC = {
    "add": ("({0} + {1})", "wrapped_sum({0}, {1})"),
    "sub": ("({0} - {1})", "wrapped_difference({0}, {1})"),
    "mul": ("({0} * {1})", "wrapped_product({0}, {1})"),
    "neg": ("(-{0})", "wrapped_negative({0})"),
    "abs": ("fabs({0})", "size_of({0})"),
    "square": ("({0} * {0})", "wrapped_product({0}, {0})"),
    "sign": ("sign_of({0})", "sign_of({0})"),
    "relu": ("nan_max({0}, {zero})", "nan_max({0}, {zero})"),
    "maximum": ("nan_max({0}, {1})", "nan_max({0}, {1})"),
    "minimum": ("nan_min({0}, {1})", "nan_min({0}, {1})"),
    "fmod": ("fmod({0}, {1})", "truncated_rest({0}, {1})"),
    "mod": ("fmod({0}, {1})", "truncated_rest({0}, {1})"),
    "remainder": ("floored_rest({0}, {1})", "floored_rest({0}, {1})"),
    "floordiv": ("floored_quotient({0}, {1})", "floored_quotient({0}, {1})"),
    "truncdiv": ("trunc({0} / {1})", "truncated_quotient({0}, {1})"),
    "pow": ("pow({0}, {1})", "whole_power({0}, {1})"),
    "bitwise_not": (None, "(~{0})"),
    "bitwise_and": (None, "({0} & {1})"),
    "bitwise_or": (None, "({0} | {1})"),
    "bitwise_xor": (None, "({0} ^ {1})"),
    "bitwise_left_shift": (None, "shifted_left({0}, {1})"),
    "bitwise_right_shift": (None, "shifted_right({0}, {1})"),
}
ARITHMETIC |= {
    alias: ARITHMETIC[name]
    for alias, name in (
        ("and_", "bitwise_and"),
        ("or_", "bitwise_or"),
        ("xor", "bitwise_xor"),
        ("lshift", "bitwise_left_shift"),
        ("rshift", "bitwise_right_shift"),
    )
}
# Of bool, as scalars and as masks.
OF_BOOL = {
    "add": ("({0} || {1})", "({0} | {1})"),
    "mul": ("({0} && {1})", "({0} & {1})"),
    "maximum": ("({0} || {1})", "({0} | {1})"),
    "minimum": ("({0} && {1})", "({0} & {1})"),
    "bitwise_not": ("(!{0})", "(~{0})"),
    "bitwise_and": ("({0} && {1})", "({0} & {1})"),
    "bitwise_or": ("({0} || {1})", "({0} | {1})"),
    "bitwise_xor": ("({0} != {1})", "({0} ^ {1})"),
    "abs": ("{0}", "{0}"),
    "neg": ("{0}", "{0}"),
    "sign": ("{0}", "{0}"),
    "relu": ("{0}", "{0}"),
    "square": ("{0}", "{0}"),
    "logical_and": ("({0} && {1})", "({0} & {1})"),
    "logical_or": ("({0} || {1})", "({0} | {1})"),
    "logical_xor": ("({0} != {1})", "({0} ^ {1})"),
    "logical_not": ("(!{0})", "(~{0})"),
}
OF_BOOL |= {
    alias: OF_BOOL[name]
    for alias, name in (
        ("and_", "bitwise_and"),
        ("or_", "bitwise_or"),
        ("xor", "bitwise_xor"),
    )
}
# Of integers they raise where the second argument is zero.
DIVISIONS = {"fmod", "mod", "remainder", "floordiv", "truncdiv"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
