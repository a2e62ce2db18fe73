"""The pointwise ops: one entry, one expression, one op.

``self``, ``other`` and the like are the op's arguments; functions that are not
OpenCL C's own are those of backend/common/math.clh.
"""

from collections.abc import Iterable
from dataclasses import replace

from torch_opencl_gen.table import Pointwise

_FUNCTIONAL = "nn.functional."

UNARY = (
    Pointwise("abs.out", "fabs(self)", complex_="complex_of(c_abs(self), 0)", integral="self < 0 ? -self : self", stub="abs_stub", vectorizable=True),
    Pointwise("neg.out", "-self", complex_="-self", vectorizable=True),
    Pointwise("reciprocal.out", "1 / self", complex_="c_reciprocal(self)", vectorizable=True),
    Pointwise("sign.out", "signum(self)"),
    Pointwise("sgn.out", "signum(self)", complex_="c_sgn(self)"),
    Pointwise("signbit.out", "signbit(self)", integral="self < 0"),
    Pointwise("sqrt.out", "sqrt(self)", complex_="c_sqrt(self)", vectorizable=True),
    Pointwise("rsqrt.out", "rsqrt(self)", complex_="c_reciprocal(c_sqrt(self))", vectorizable=True),
    Pointwise("exp.out", "exp(self)", complex_="c_exp(self)", vectorizable=True),
    Pointwise("exp2.out", "exp2(self)", complex_="c_exp2(self)", vectorizable=True),
    Pointwise("expm1.out", "expm1(self)", complex_="c_expm1(self)", vectorizable=True),
    Pointwise("log.out", "log(self)", complex_="c_log(self)", vectorizable=True),
    Pointwise("log2.out", "log2(self)", complex_="c_scale(c_log(self), REAL(1.44269504088896340736))", vectorizable=True),
    Pointwise("log10.out", "log10(self)", complex_="c_scale(c_log(self), REAL(0.43429448190325182765))", vectorizable=True),
    Pointwise("log1p.out", "log1p(self)", complex_="c_log1p(self)", vectorizable=True),
    Pointwise("sin.out", "sine(self)", complex_="c_sin(self)", vectorizable=True),
    Pointwise("cos.out", "cosine(self)", complex_="c_cos(self)", vectorizable=True),
    Pointwise("tan.out", "tangent(self)", complex_="c_tan(self)", vectorizable=True),
    Pointwise("asin.out", "asin(self)", complex_="c_asin(self)", vectorizable=True),
    Pointwise("acos.out", "acos(self)", complex_="c_acos(self)", vectorizable=True),
    Pointwise("atan.out", "atan(self)", complex_="c_atan(self)", vectorizable=True),
    Pointwise("sinh.out", "sinh(self)", complex_="c_sinh(self)", vectorizable=True),
    Pointwise("cosh.out", "cosh(self)", complex_="c_cosh(self)", vectorizable=True),
    Pointwise("tanh.out", "tanh(self)", complex_="c_tanh(self)", vectorizable=True),
    Pointwise("asinh.out", "asinh(self)", complex_="c_asinh(self)", vectorizable=True),
    Pointwise("acosh.out", "acosh(self)", complex_="c_acosh(self)", vectorizable=True),
    Pointwise("atanh.out", "atanh(self)", complex_="c_atanh(self)", vectorizable=True),
    Pointwise("floor.out", "floor(self)", integral="self", vectorizable=True),
    Pointwise("ceil.out", "ceil(self)", integral="self", vectorizable=True),
    Pointwise("trunc.out", "trunc(self)", integral="self", vectorizable=True),
    Pointwise("round.out", "rint(self)", integral="self", vectorizable=True),
    Pointwise("round.decimals_out", "round_decimals(self, decimals)", dtypes="floating"),
    Pointwise("frac.out", "self - trunc(self)", dtypes="floating"),
    Pointwise("angle.out", "isnan(self) ? self : self < 0 ? REAL(3.14159265358979323846) : 0", complex_="complex_of(c_angle(self), 0)", stub="angle_stub", also=("angle",)),
    Pointwise("conj_physical.out", "self", complex_="c_conj(self)", stub="conj_physical_stub"),
    Pointwise("bitwise_not.out", "~self", dtypes="integral", bool_="!self"),
    Pointwise("logical_not.out", "self == 0", complex_="c_condition(!c_true(self))", stub="logical_not_stub"),
    Pointwise("isposinf.out", "self == INFINITY", integral="0"),
    Pointwise("isneginf.out", "self == -INFINITY", integral="0"),
    Pointwise("logit.out", "logit(self, eps)", scalars="eps", stub="logit_stub", also=("logit", "logit_"), vectorizable=True),
)  # fmt: skip

SPECIAL = (
    Pointwise("erf.out", "erf(self)", vectorizable=True),
    Pointwise("erfc.out", "erfc(self)", vectorizable=True),
    Pointwise("erfinv.out", "erf_inverse(self)", vectorizable=True),
    Pointwise("special_erfcx.out", "erfc_scaled(self)", opinfo="special.erfcx", vectorizable=True),
    Pointwise("special_ndtri.out", "normal_quantile(self)", opinfo="special.ndtri", vectorizable=True),
    Pointwise("special_log_ndtr.out", "log_normal_cdf(self)", opinfo="special.log_ndtr", vectorizable=True),
    Pointwise("special_entr.out", "entropy(self)", opinfo="special.entr", vectorizable=True),
    Pointwise("sinc.out", "sin_over_x(self)", complex_="c_sinc(self)", vectorizable=True),
    Pointwise("lgamma.out", "log_gamma(self)", vectorizable=True),
    Pointwise("digamma.out", "digamma(self)", vectorizable=True),
    Pointwise("polygamma.out", "polygamma(n, self)", vectorizable=True),
    Pointwise("i0.out", "bessel_i0(self)", vectorizable=True),
    Pointwise("special_i0e.out", "bessel_i0_scaled(self)", opinfo="special.i0e", vectorizable=True),
    Pointwise("special_i1.out", "bessel_i1(self)", opinfo="special.i1", vectorizable=True),
    Pointwise("special_i1e.out", "bessel_i1_scaled(self)", opinfo="special.i1e", vectorizable=True),
    Pointwise("special_modified_bessel_i0.out", "bessel_i0(self)", opinfo="special.modified_bessel_i0", vectorizable=True),
    Pointwise("special_modified_bessel_i1.out", "bessel_i1(self)", opinfo="special.modified_bessel_i1", vectorizable=True),
    Pointwise("special_modified_bessel_k0.out", "bessel_k0(self)", opinfo="special.modified_bessel_k0", vectorizable=True),
    Pointwise("special_modified_bessel_k1.out", "bessel_k1(self)", opinfo="special.modified_bessel_k1", vectorizable=True),
    Pointwise("special_scaled_modified_bessel_k0.out", "bessel_k0_scaled(x)", opinfo="special.scaled_modified_bessel_k0", vectorizable=True),
    Pointwise("special_scaled_modified_bessel_k1.out", "bessel_k1_scaled(x)", opinfo="special.scaled_modified_bessel_k1", vectorizable=True),
    Pointwise("special_bessel_j0.out", "bessel_j0(self)", opinfo="special.bessel_j0", vectorizable=True),
    Pointwise("special_bessel_j1.out", "bessel_j1(self)", opinfo="special.bessel_j1", vectorizable=True),
    Pointwise("special_bessel_y0.out", "bessel_y0(self)", opinfo="special.bessel_y0", vectorizable=True),
    Pointwise("special_bessel_y1.out", "bessel_y1(self)", opinfo="special.bessel_y1", vectorizable=True),
    Pointwise("special_spherical_bessel_j0.out", "spherical_bessel_j0(x)", opinfo="special.spherical_bessel_j0", vectorizable=True),
    Pointwise("special_airy_ai.out", "airy_ai(x)", opinfo="special.airy_ai", vectorizable=True),
    Pointwise("special_zeta.out", "zeta(self, other)", opinfo="special.zeta", vectorizable=True),
    Pointwise("igamma.out", "gamma_lower(self, other)", dtypes="floating"),
    Pointwise("igammac.out", "gamma_upper(self, other)", dtypes="floating"),
    Pointwise("special_hermite_polynomial_h.out", "hermite_h(x, n)", opinfo="special.hermite_polynomial_h"),
    Pointwise("special_hermite_polynomial_he.out", "hermite_he(x, n)", opinfo="special.hermite_polynomial_he"),
    Pointwise("special_laguerre_polynomial_l.out", "laguerre_l(x, n)", opinfo="special.laguerre_polynomial_l"),
    Pointwise("special_legendre_polynomial_p.out", "legendre_p(x, n)", opinfo="special.legendre_polynomial_p"),
    *(
        Pointwise(f"special_{shifted}chebyshev_polynomial_{kind}.out", f"chebyshev_{kind}({x}, n)", opinfo=f"special.{shifted}chebyshev_polynomial_{kind}")
        for shifted, x in (("", "x"), ("shifted_", "2 * x - 1"))
        for kind in "tuvw"
    ),
)  # fmt: skip

ACTIVATION = (
    Pointwise("sigmoid.out", "sigmoid(self)", complex_="c_sigmoid(self)", vectorizable=True),
    Pointwise("silu.out", "silu(self)", opinfo=_FUNCTIONAL + "silu", vectorizable=True),
    Pointwise("mish.out", "mish(self)", opinfo=_FUNCTIONAL + "mish", vectorizable=True),
    Pointwise("gelu.out", "approximate != 0 ? gelu_tanh(self) : gelu_none(self)", opinfo=_FUNCTIONAL + "gelu", vectorizable=True),
    Pointwise("elu.out", "elu(self, alpha, scale, input_scale)", opinfo=_FUNCTIONAL + "elu", vectorizable=True),
    Pointwise("softplus.out", "softplus(self, beta, threshold)", opinfo=_FUNCTIONAL + "softplus", vectorizable=True),
    Pointwise("leaky_relu.out", "self > 0 ? self : self * negative_slope", opinfo=_FUNCTIONAL + "leaky_relu", vectorizable=True),
    Pointwise("hardsigmoid.out", "relu6(self + 3) / 6", opinfo=_FUNCTIONAL + "hardsigmoid", vectorizable=True),
    Pointwise("hardswish.out", "self * relu6(self + 3) / 6", stub="hardswish_stub", also=("hardswish", "hardswish_"), opinfo=_FUNCTIONAL + "hardswish", vectorizable=True),
    Pointwise("hardshrink.out", "self >= -lambd && self <= lambd ? 0 : self", checks_scalars=True, opinfo=_FUNCTIONAL + "hardshrink", vectorizable=True),
    Pointwise("softshrink.out", "softshrink(self, lambd)", opinfo=_FUNCTIONAL + "softshrink"),
    # The meta function adds self twice.
    Pointwise("threshold.out", "self <= threshold ? value : other", inputs="self other", checks_scalars=True, opinfo=_FUNCTIONAL + "threshold", vectorizable=True),
    Pointwise("glu.out", "self * sigmoid(other)", inputs="self other", stub="glu_stub", opinfo=_FUNCTIONAL + "glu", vectorizable=True),
    Pointwise("glu_jvp", "self_tangent * sigmoid(gate) + glu * (gate_tangent - sigmoid(gate) * gate_tangent)", inputs="glu gate self_tangent gate_tangent", stub="glu_jvp_stub", opinfo=_FUNCTIONAL + "glu", vectorizable=True),
    Pointwise("_prelu_kernel", "self > 0 ? self : weight * self", stub="prelu_stub", opinfo=_FUNCTIONAL + "prelu", vectorizable=True),
)  # fmt: skip

BINARY = (
    Pointwise("add.out", "self + alpha * other", complex_="self + c_multiple(alpha, other)", vectorizable=True, counts=True),
    Pointwise("sub.out", "self - alpha * other", complex_="self - c_multiple(alpha, other)", vectorizable=True),
    Pointwise("mul.out", "self * other", complex_="c_multiply(self, other)", keeps_numbers=True, vectorizable=True),
    Pointwise("div.out", "self / other", complex_="c_divide(self, other)", stub="div_true_stub", keeps_numbers=True, vectorizable=True),
    Pointwise("div.out_mode", "divide_trunc(self, other)", stub="div_trunc_stub", keeps_numbers=True, divides=True),
    Pointwise("floor_divide.out", "divide_floor(self, other)", stub="div_floor_stub", also=("floor_divide", "floor_divide_.Tensor"), keeps_numbers=True, vectorizable=True, divides=True),
    Pointwise("remainder.Tensor_out", "remainder_floor(self, other)", vectorizable=True, divides=True),
    Pointwise("fmod.Tensor_out", "fmod(self, other)", integral="remainder_trunc(self, other)", vectorizable=True, divides=True),
    Pointwise("pow.Tensor_Tensor_out", "power(self, exponent)", complex_="c_pow(self, exponent)", vectorizable=True),
    Pointwise("pow.Tensor_Scalar_out", "power_scalar(self, exponent)", complex_="c_pow_scalar(self, exponent)", checks_scalars=True, vectorizable=True),
    Pointwise("maximum.out", "maximum_nan(self, other)", stub="maximum_stub", also=("clamp_min.Tensor_out",), vectorizable=True),
    Pointwise("minimum.out", "minimum_nan(self, other)", stub="minimum_stub", also=("clamp_max.Tensor_out",), vectorizable=True),
    Pointwise("fmax.out", "fmax(self, other)", integral="max(self, other)"),
    Pointwise("fmin.out", "fmin(self, other)", integral="min(self, other)"),
    Pointwise("atan2.out", "atan2(self, other)", vectorizable=True),
    Pointwise("hypot.out", "hypot(self, other)", dtypes="floating", vectorizable=True),
    Pointwise("copysign.out", "copysign(self, other)"),
    Pointwise("nextafter.out", "next_after(self, other)", dtypes="floating"),
    Pointwise("heaviside.out", "heaviside(self, values)"),
    Pointwise("logaddexp.out", "log_add_exp(self, other)", dtypes="floating", vectorizable=True),
    Pointwise("logaddexp2.out", "log_add_exp2(self, other)", dtypes="floating", vectorizable=True),
    Pointwise("xlogy.OutTensor", "x_log_y(self, other)", vectorizable=True),
    Pointwise("special_xlog1py.out", "x_log1p_y(self, other)", opinfo="special.xlog1py", vectorizable=True),
    Pointwise("gcd.out", "greatest_common_divisor(self, other)", dtypes="integral"),
    Pointwise("lcm.out", "least_common_multiple(self, other)", dtypes="integral"),
    Pointwise("bitwise_and.Tensor_out", "self & other", dtypes="integral"),
    Pointwise("bitwise_or.Tensor_out", "self | other", dtypes="integral"),
    Pointwise("bitwise_xor.Tensor_out", "self ^ other", dtypes="integral"),
    Pointwise("bitwise_left_shift.Tensor_out", "shift_left(self, other)", dtypes="integral", stub="lshift_stub", also=("__lshift__.Tensor", "__lshift__.Scalar", "__ilshift__.Tensor", "__ilshift__.Scalar")),
    Pointwise("bitwise_right_shift.Tensor_out", "shift_right(self, other)", dtypes="integral", stub="rshift_stub", also=("__rshift__.Tensor", "__rshift__.Scalar", "__irshift__.Tensor", "__irshift__.Scalar")),
)  # fmt: skip

COMPARISON = tuple(
    # The meta function makes the Scalar overload's number an operand.
    Pointwise(
        f"{name}.Tensor_out",
        f"self {operator} other",
        inputs="self other",
        also=(f"{name}.Scalar_out",),
        complex_=f"c_condition({condition})" if condition else "",
    )
    for name, operator, condition in (
        ("eq", "==", "c_equal(self, other)"),
        ("ne", "!=", "!c_equal(self, other)"),
        ("lt", "<", ""),
        ("le", "<=", ""),
        ("gt", ">", ""),
        ("ge", ">=", ""),
    )
)

LOGICAL = (
    Pointwise("logical_and.out", "self != 0 && other != 0", complex_="c_condition(c_true(self) && c_true(other))", stub="logical_and_stub"),
    Pointwise("logical_or.out", "self != 0 || other != 0", complex_="c_condition(c_true(self) || c_true(other))", stub="logical_or_stub"),
    Pointwise("logical_xor.out", "(self != 0) != (other != 0)", complex_="c_condition(c_true(self) != c_true(other))", stub="logical_xor_stub"),
)  # fmt: skip

TERNARY = (
    Pointwise("addcmul.out", "self + value * tensor1 * tensor2", complex_="self + c_multiple(value, c_multiply(tensor1, tensor2))", vectorizable=True),
    Pointwise("addcdiv.out", "self + value * tensor1 / tensor2", complex_="self + c_divide(c_multiple(value, tensor1), tensor2)", vectorizable=True),
    Pointwise("lerp.Scalar_out", "lerp(self, end, weight)", complex_="c_lerp(self, end, weight)", dtypes="floating", vectorizable=True),
    Pointwise("lerp.Tensor_out", "lerp(self, end, weight)", complex_="c_lerp(self, end, weight)", dtypes="floating", vectorizable=True),
    Pointwise("where.self_out", "condition != 0 ? self : other", complex_="c_true(condition) ? self : other", stub="where_kernel", also=("where.self",), vectorizable=True, moves=True),
    # min and max would hide OpenCL's functions.
    Pointwise("clamp.out", "clamp_nan(self, low, high)", scalars="low high", stub="clamp_scalar_stub", vectorizable=True, clamp="both"),
    Pointwise("clamp_min.out", "maximum_nan(self, low)", scalars="low", stub="clamp_min_scalar_stub", vectorizable=True, clamp="below"),
    Pointwise("clamp_max.out", "minimum_nan(self, high)", scalars="high", stub="clamp_max_scalar_stub", vectorizable=True, clamp="above"),
    Pointwise("clamp.Tensor_out", "clamp_nan(self, low, high)", inputs="self low high", stub="clamp_stub", vectorizable=True),
)  # fmt: skip

LOSS = (
    # PyTorch derives a functional form that resizes the reduced result, and warns.
    Pointwise("mse_loss.out", "(self - target) * (self - target)", stub="mse_stub", also=("mse_loss",), opinfo=_FUNCTIONAL + "mse_loss", vectorizable=True),
    Pointwise("smooth_l1_loss.out", "smooth_l1(self - target, beta)", scalars="beta", stub="smooth_l1_stub", also=("smooth_l1_loss",), opinfo=_FUNCTIONAL + "smooth_l1_loss"),
    Pointwise("huber_loss.out", "huber(self - target, delta)", scalars="delta", stub="huber_stub", also=("huber_loss",), opinfo=_FUNCTIONAL + "huber_loss"),
    # ATen's host functions add grad_output last.
    Pointwise("mse_loss_backward.grad_input", "norm * (self - target) * grad_output", inputs="self target grad_output", scalars="norm", stub="mse_backward_stub", also=("mse_loss_backward",), opinfo=_FUNCTIONAL + "mse_loss", vectorizable=True),
    Pointwise("smooth_l1_loss_backward.grad_input", "norm * smooth_l1_derivative(self - target, beta) * grad_output", inputs="self target grad_output", scalars="norm beta", stub="smooth_l1_backward_stub", opinfo=_FUNCTIONAL + "smooth_l1_loss"),
    Pointwise("huber_loss_backward.out", "norm * clamp_nan(self - target, -delta, delta) * grad_output", inputs="self target grad_output", scalars="norm delta", stub="huber_backward_stub", opinfo=_FUNCTIONAL + "huber_loss"),
)  # fmt: skip

BACKWARD = (
    Pointwise("sigmoid_backward.grad_input", "grad_output * (1 - output) * output", complex_="c_multiply(grad_output, c_conj(c_multiply(complex_of(1, 0) - output, output)))", opinfo="sigmoid", vectorizable=True),
    Pointwise("tanh_backward.grad_input", "grad_output * (1 - output * output)", complex_="c_multiply(grad_output, c_conj(complex_of(1, 0) - c_multiply(output, output)))", opinfo="tanh", vectorizable=True),
    Pointwise("silu_backward.grad_input", "grad_output * silu_derivative(self)", opinfo=_FUNCTIONAL + "silu", vectorizable=True),
    Pointwise("mish_backward", "grad_output * mish_derivative(self)", stub="mish_backward_stub", opinfo=_FUNCTIONAL + "mish", vectorizable=True),
    Pointwise("gelu_backward.grad_input", "grad_output * (approximate != 0 ? gelu_tanh_derivative(self) : gelu_none_derivative(self))", opinfo=_FUNCTIONAL + "gelu", vectorizable=True),
    Pointwise("elu_backward.grad_input", "grad_output * elu_derivative(self_or_result, alpha, scale, input_scale, is_result)", opinfo=_FUNCTIONAL + "elu", vectorizable=True),
    Pointwise("softplus_backward.grad_input", "grad_output * softplus_derivative(self, beta, threshold)", opinfo=_FUNCTIONAL + "softplus", vectorizable=True),
    # The meta functions of leaky_relu and threshold add self first.
    Pointwise("leaky_relu_backward.grad_input", "self > 0 ? grad_output : grad_output * negative_slope", inputs="self grad_output", opinfo=_FUNCTIONAL + "leaky_relu", vectorizable=True),
    Pointwise("threshold_backward.grad_input", "kept_where(!(self <= threshold), grad_output)", inputs="self grad_output", opinfo=_FUNCTIONAL + "threshold", vectorizable=True),
    Pointwise("hardsigmoid_backward.grad_input", "kept_where(self > -3 && self < 3, grad_output) / 6", opinfo=_FUNCTIONAL + "hardsigmoid", vectorizable=True),
    Pointwise("hardswish_backward", "self <= -3 ? 0 : self >= 3 ? grad_output : grad_output * (self / 3 + REAL(0.5))", stub="hardswish_backward_stub", opinfo=_FUNCTIONAL + "hardswish", vectorizable=True),
    Pointwise("hardtanh_backward.grad_input", "kept_where(self > min_val && self < max_val, grad_output)", stub="hardtanh_backward_stub", also=("hardtanh_backward",), opinfo=_FUNCTIONAL + "hardtanh", vectorizable=True),
    Pointwise("hardshrink_backward.grad_input", "kept_where(self < -lambd || self > lambd, grad_out)", checks_scalars=True, opinfo=_FUNCTIONAL + "hardshrink", vectorizable=True),
    Pointwise("softshrink_backward.grad_input", "kept_where(self < -lambd || self > lambd, grad_output)", checks_scalars=True, opinfo=_FUNCTIONAL + "softshrink", vectorizable=True),
    Pointwise("logit_backward.grad_input", "logit_backward(grad_output, self, eps)", scalars="eps", stub="logit_backward_stub", opinfo="logit"),
    # ATen's host function hands the sigmoid of the gate in, and out a half.
    Pointwise("glu_backward.grad_input", "(1 - gate) * gate * self * grad_output", inputs="gate self grad_output", stub="glu_backward_stub", function="glu_backward_cpu_out", opinfo=_FUNCTIONAL + "glu", vectorizable=True),
)  # fmt: skip


def _floating(entries: Iterable[Pointwise]) -> Iterable[Pointwise]:
    """The entries, restricted; relu's forms serve integers too."""
    for entry in entries:
        yield entry if "threshold" in entry.name else replace(entry, dtypes="floating")


POINTWISE: tuple[Pointwise, ...] = (
    *UNARY,
    *SPECIAL,
    *_floating(ACTIVATION),
    *BINARY,
    *COMPARISON,
    *LOGICAL,
    *TERNARY,
    *_floating(LOSS),
    *_floating(BACKWARD),
)
