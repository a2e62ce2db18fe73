"""The pointwise ops: one entry, one expression, one op.

``self``, ``other`` and the like are the op's arguments; functions that are not
OpenCL C's own are those of backend/common/math.clh.
"""

from collections.abc import Iterable
from dataclasses import replace

from torch_opencl_gen.table import Pointwise

_FUNCTIONAL = "nn.functional."

UNARY = (
    Pointwise("abs.out", "fabs(self)", integral="self < 0 ? -self : self", stub="abs_stub", lanewise=True),
    Pointwise("neg.out", "-self", lanewise=True),
    Pointwise("reciprocal.out", "1 / self", lanewise=True),
    Pointwise("sign.out", "signum(self)"),
    Pointwise("sgn.out", "signum(self)"),
    Pointwise("signbit.out", "signbit(self)", integral="self < 0"),
    Pointwise("sqrt.out", "sqrt(self)", lanewise=True),
    Pointwise("rsqrt.out", "rsqrt(self)", lanewise=True),
    Pointwise("exp.out", "exp(self)", lanewise=True),
    Pointwise("exp2.out", "exp2(self)", lanewise=True),
    Pointwise("expm1.out", "expm1(self)", lanewise=True),
    Pointwise("log.out", "log(self)", lanewise=True),
    Pointwise("log2.out", "log2(self)", lanewise=True),
    Pointwise("log10.out", "log10(self)", lanewise=True),
    Pointwise("log1p.out", "log1p(self)", lanewise=True),
    Pointwise("sin.out", "sine(self)", lanewise=True),
    Pointwise("cos.out", "cosine(self)", lanewise=True),
    Pointwise("tan.out", "tangent(self)", lanewise=True),
    Pointwise("asin.out", "asin(self)", lanewise=True),
    Pointwise("acos.out", "acos(self)", lanewise=True),
    Pointwise("atan.out", "atan(self)", lanewise=True),
    Pointwise("sinh.out", "sinh(self)", lanewise=True),
    Pointwise("cosh.out", "cosh(self)", lanewise=True),
    Pointwise("tanh.out", "tanh(self)", lanewise=True),
    Pointwise("asinh.out", "asinh(self)", lanewise=True),
    Pointwise("acosh.out", "acosh(self)", lanewise=True),
    Pointwise("atanh.out", "atanh(self)", lanewise=True),
    Pointwise("floor.out", "floor(self)", integral="self", lanewise=True),
    Pointwise("ceil.out", "ceil(self)", integral="self", lanewise=True),
    Pointwise("trunc.out", "trunc(self)", integral="self", lanewise=True),
    Pointwise("round.out", "rint(self)", integral="self", lanewise=True),
    Pointwise("round.decimals_out", "round_decimals(self, decimals)", integral="self"),
    Pointwise("frac.out", "self - trunc(self)", dtypes="floating"),
    Pointwise("angle.out", "isnan(self) ? self : self < 0 ? REAL(3.14159265358979323846) : 0", stub="angle_stub", also=("angle",)),
    Pointwise("conj_physical.out", "self", stub="conj_physical_stub"),
    Pointwise("bitwise_not.out", "~self", dtypes="integral", bool_="!self"),
    Pointwise("logical_not.out", "self == 0", stub="logical_not_stub"),
    Pointwise("isposinf.out", "self == INFINITY", integral="0"),
    Pointwise("isneginf.out", "self == -INFINITY", integral="0"),
    Pointwise("logit.out", "logit(self, eps)", scalars="eps", stub="logit_stub", also=("logit", "logit_"), lanewise=True),
)  # fmt: skip

SPECIAL = (
    Pointwise("erf.out", "erf(self)", lanewise=True),
    Pointwise("erfc.out", "erfc(self)", lanewise=True),
    Pointwise("erfinv.out", "erf_inverse(self)", lanewise=True),
    Pointwise("special_erfcx.out", "erfc_scaled(self)", opinfo="special.erfcx", lanewise=True),
    Pointwise("special_ndtri.out", "normal_quantile(self)", opinfo="special.ndtri", lanewise=True),
    Pointwise("special_log_ndtr.out", "log_normal_cdf(self)", opinfo="special.log_ndtr", lanewise=True),
    Pointwise("special_entr.out", "entropy(self)", opinfo="special.entr", lanewise=True),
    Pointwise("sinc.out", "sin_over_x(self)", lanewise=True),
    Pointwise("lgamma.out", "log_gamma(self)", lanewise=True),
    Pointwise("digamma.out", "digamma(self)", lanewise=True),
    Pointwise("polygamma.out", "polygamma(n, self)", lanewise=True),
    Pointwise("i0.out", "bessel_i0(self)", lanewise=True),
    Pointwise("special_i0e.out", "bessel_i0_scaled(self)", opinfo="special.i0e", lanewise=True),
    Pointwise("special_i1.out", "bessel_i1(self)", opinfo="special.i1", lanewise=True),
    Pointwise("special_i1e.out", "bessel_i1_scaled(self)", opinfo="special.i1e", lanewise=True),
    Pointwise("special_modified_bessel_i0.out", "bessel_i0(self)", opinfo="special.modified_bessel_i0", lanewise=True),
    Pointwise("special_modified_bessel_i1.out", "bessel_i1(self)", opinfo="special.modified_bessel_i1", lanewise=True),
    Pointwise("special_modified_bessel_k0.out", "bessel_k0(self)", opinfo="special.modified_bessel_k0", lanewise=True),
    Pointwise("special_modified_bessel_k1.out", "bessel_k1(self)", opinfo="special.modified_bessel_k1", lanewise=True),
    Pointwise("special_scaled_modified_bessel_k0.out", "bessel_k0_scaled(x)", opinfo="special.scaled_modified_bessel_k0", lanewise=True),
    Pointwise("special_scaled_modified_bessel_k1.out", "bessel_k1_scaled(x)", opinfo="special.scaled_modified_bessel_k1", lanewise=True),
    Pointwise("special_bessel_j0.out", "bessel_j0(self)", opinfo="special.bessel_j0", lanewise=True),
    Pointwise("special_bessel_j1.out", "bessel_j1(self)", opinfo="special.bessel_j1", lanewise=True),
    Pointwise("special_bessel_y0.out", "bessel_y0(self)", opinfo="special.bessel_y0", lanewise=True),
    Pointwise("special_bessel_y1.out", "bessel_y1(self)", opinfo="special.bessel_y1", lanewise=True),
    Pointwise("special_spherical_bessel_j0.out", "spherical_bessel_j0(x)", opinfo="special.spherical_bessel_j0", lanewise=True),
    Pointwise("special_airy_ai.out", "airy_ai(x)", opinfo="special.airy_ai", lanewise=True),
    Pointwise("special_zeta.out", "zeta(self, other)", opinfo="special.zeta", lanewise=True),
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
    Pointwise("sigmoid.out", "sigmoid(self)", lanewise=True),
    Pointwise("silu.out", "silu(self)", opinfo=_FUNCTIONAL + "silu", lanewise=True),
    Pointwise("mish.out", "mish(self)", opinfo=_FUNCTIONAL + "mish", lanewise=True),
    Pointwise("gelu.out", "approximate != 0 ? gelu_tanh(self) : gelu_none(self)", opinfo=_FUNCTIONAL + "gelu", lanewise=True),
    Pointwise("elu.out", "elu(self, alpha, scale, input_scale)", opinfo=_FUNCTIONAL + "elu", lanewise=True),
    Pointwise("softplus.out", "softplus(self, beta, threshold)", opinfo=_FUNCTIONAL + "softplus", lanewise=True),
    Pointwise("leaky_relu.out", "self > 0 ? self : self * negative_slope", opinfo=_FUNCTIONAL + "leaky_relu", lanewise=True),
    Pointwise("hardsigmoid.out", "relu6(self + 3) / 6", opinfo=_FUNCTIONAL + "hardsigmoid", lanewise=True),
    Pointwise("hardswish.out", "self * relu6(self + 3) / 6", stub="hardswish_stub", also=("hardswish", "hardswish_"), opinfo=_FUNCTIONAL + "hardswish", lanewise=True),
    Pointwise("hardshrink.out", "self >= -lambd && self <= lambd ? 0 : self", opinfo=_FUNCTIONAL + "hardshrink", lanewise=True),
    Pointwise("softshrink.out", "softshrink(self, lambd)", opinfo=_FUNCTIONAL + "softshrink"),
    # The meta function adds self twice.
    Pointwise("threshold.out", "self <= threshold ? value : other", inputs="self other", opinfo=_FUNCTIONAL + "threshold", lanewise=True),
    Pointwise("glu.out", "self * sigmoid(other)", inputs="self other", stub="glu_stub", opinfo=_FUNCTIONAL + "glu", lanewise=True),
    Pointwise("glu_jvp", "self_tangent * sigmoid(gate) + glu * (gate_tangent - sigmoid(gate) * gate_tangent)", inputs="glu gate self_tangent gate_tangent", stub="glu_jvp_stub", opinfo=_FUNCTIONAL + "glu", lanewise=True),
    Pointwise("_prelu_kernel", "self > 0 ? self : weight * self", stub="prelu_stub", opinfo=_FUNCTIONAL + "prelu", lanewise=True),
)  # fmt: skip

BINARY = (
    Pointwise("add.out", "self + alpha * other", lanewise=True),
    Pointwise("sub.out", "self - alpha * other", lanewise=True),
    Pointwise("mul.out", "self * other", keeps_numbers=True, lanewise=True),
    Pointwise("div.out", "self / other", stub="div_true_stub", keeps_numbers=True, lanewise=True),
    Pointwise("div.out_mode", "divide_trunc(self, other)", stub="div_trunc_stub", keeps_numbers=True, divides=True),
    Pointwise("floor_divide.out", "divide_floor(self, other)", stub="div_floor_stub", also=("floor_divide", "floor_divide_.Tensor"), keeps_numbers=True, lanewise=True, divides=True),
    Pointwise("remainder.Tensor_out", "remainder_floor(self, other)", lanewise=True, divides=True),
    Pointwise("fmod.Tensor_out", "fmod(self, other)", integral="remainder_trunc(self, other)", lanewise=True, divides=True),
    Pointwise("pow.Tensor_Tensor_out", "power(self, exponent)", lanewise=True),
    Pointwise("pow.Tensor_Scalar_out", "power_scalar(self, exponent)", checks_scalars=True, lanewise=True),
    Pointwise("maximum.out", "maximum_nan(self, other)", stub="maximum_stub", also=("clamp_min.Tensor_out",), lanewise=True),
    Pointwise("minimum.out", "minimum_nan(self, other)", stub="minimum_stub", also=("clamp_max.Tensor_out",), lanewise=True),
    Pointwise("fmax.out", "fmax(self, other)", integral="max(self, other)"),
    Pointwise("fmin.out", "fmin(self, other)", integral="min(self, other)"),
    Pointwise("atan2.out", "atan2(self, other)", lanewise=True),
    Pointwise("hypot.out", "hypot(self, other)", dtypes="floating", lanewise=True),
    Pointwise("copysign.out", "copysign(self, other)"),
    Pointwise("nextafter.out", "next_after(self, other)", dtypes="floating"),
    Pointwise("heaviside.out", "heaviside(self, values)"),
    Pointwise("logaddexp.out", "log_add_exp(self, other)", dtypes="floating", lanewise=True),
    Pointwise("logaddexp2.out", "log_add_exp2(self, other)", dtypes="floating", lanewise=True),
    Pointwise("xlogy.OutTensor", "x_log_y(self, other)", lanewise=True),
    Pointwise("special_xlog1py.out", "x_log1p_y(self, other)", opinfo="special.xlog1py", lanewise=True),
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
    )
    for name, operator in (
        ("eq", "=="),
        ("ne", "!="),
        ("lt", "<"),
        ("le", "<="),
        ("gt", ">"),
        ("ge", ">="),
    )
)

LOGICAL = (
    Pointwise("logical_and.out", "self != 0 && other != 0", stub="logical_and_stub"),
    Pointwise("logical_or.out", "self != 0 || other != 0", stub="logical_or_stub"),
    Pointwise("logical_xor.out", "(self != 0) != (other != 0)", stub="logical_xor_stub"),
)  # fmt: skip

TERNARY = (
    Pointwise("addcmul.out", "self + value * tensor1 * tensor2", lanewise=True),
    Pointwise("addcdiv.out", "self + value * (tensor1 / tensor2)", lanewise=True),
    Pointwise("lerp.Scalar_out", "lerp(self, end, weight)", dtypes="floating", lanewise=True),
    Pointwise("lerp.Tensor_out", "lerp(self, end, weight)", dtypes="floating", lanewise=True),
    Pointwise("where.self_out", "condition != 0 ? self : other", stub="where_kernel", also=("where.self",), lanewise=True),
    # min and max would hide OpenCL's functions.
    Pointwise("clamp.out", "clamp_nan(self, low, high)", scalars="low high", stub="clamp_scalar_stub", lanewise=True, clamp="both"),
    Pointwise("clamp_min.out", "maximum_nan(self, low)", scalars="low", stub="clamp_min_scalar_stub", lanewise=True, clamp="below"),
    Pointwise("clamp_max.out", "minimum_nan(self, high)", scalars="high", stub="clamp_max_scalar_stub", lanewise=True, clamp="above"),
    Pointwise("clamp.Tensor_out", "clamp_nan(self, low, high)", inputs="self low high", stub="clamp_stub", lanewise=True),
)  # fmt: skip

LOSS = (
    # PyTorch derives a functional form that resizes the reduced result, and warns.
    Pointwise("mse_loss.out", "(self - target) * (self - target)", stub="mse_stub", also=("mse_loss",), opinfo=_FUNCTIONAL + "mse_loss", lanewise=True),
    Pointwise("smooth_l1_loss.out", "smooth_l1(self - target, beta)", scalars="beta", stub="smooth_l1_stub", also=("smooth_l1_loss",), opinfo=_FUNCTIONAL + "smooth_l1_loss"),
    Pointwise("huber_loss.out", "huber(self - target, delta)", scalars="delta", stub="huber_stub", also=("huber_loss",), opinfo=_FUNCTIONAL + "huber_loss"),
    # ATen's host functions add grad_output last.
    Pointwise("mse_loss_backward.grad_input", "norm * (self - target) * grad_output", inputs="self target grad_output", scalars="norm", stub="mse_backward_stub", also=("mse_loss_backward",), opinfo=_FUNCTIONAL + "mse_loss", lanewise=True),
    Pointwise("smooth_l1_loss_backward.grad_input", "norm * smooth_l1_derivative(self - target, beta) * grad_output", inputs="self target grad_output", scalars="norm beta", stub="smooth_l1_backward_stub", opinfo=_FUNCTIONAL + "smooth_l1_loss"),
    Pointwise("huber_loss_backward.out", "norm * clamp_nan(self - target, -delta, delta) * grad_output", inputs="self target grad_output", scalars="norm delta", stub="huber_backward_stub", opinfo=_FUNCTIONAL + "huber_loss"),
)  # fmt: skip

BACKWARD = (
    Pointwise("sigmoid_backward.grad_input", "grad_output * (1 - output) * output", opinfo="sigmoid", lanewise=True),
    Pointwise("tanh_backward.grad_input", "grad_output * (1 - output * output)", opinfo="tanh", lanewise=True),
    Pointwise("silu_backward.grad_input", "grad_output * silu_derivative(self)", opinfo=_FUNCTIONAL + "silu", lanewise=True),
    Pointwise("mish_backward", "grad_output * mish_derivative(self)", stub="mish_backward_stub", opinfo=_FUNCTIONAL + "mish", lanewise=True),
    Pointwise("gelu_backward.grad_input", "grad_output * (approximate != 0 ? gelu_tanh_derivative(self) : gelu_none_derivative(self))", opinfo=_FUNCTIONAL + "gelu", lanewise=True),
    Pointwise("elu_backward.grad_input", "grad_output * elu_derivative(self_or_result, alpha, scale, input_scale, is_result)", opinfo=_FUNCTIONAL + "elu", lanewise=True),
    Pointwise("softplus_backward.grad_input", "grad_output * softplus_derivative(self, beta, threshold)", opinfo=_FUNCTIONAL + "softplus", lanewise=True),
    # The meta functions of leaky_relu and threshold add self first.
    Pointwise("leaky_relu_backward.grad_input", "self > 0 ? grad_output : grad_output * negative_slope", inputs="self grad_output", opinfo=_FUNCTIONAL + "leaky_relu", lanewise=True),
    Pointwise("threshold_backward.grad_input", "kept_where(!(self <= threshold), grad_output)", inputs="self grad_output", opinfo=_FUNCTIONAL + "threshold", lanewise=True),
    Pointwise("hardsigmoid_backward.grad_input", "kept_where(self > -3 && self < 3, grad_output) / 6", opinfo=_FUNCTIONAL + "hardsigmoid", lanewise=True),
    Pointwise("hardswish_backward", "self <= -3 ? 0 : self >= 3 ? grad_output : grad_output * (self / 3 + REAL(0.5))", stub="hardswish_backward_stub", opinfo=_FUNCTIONAL + "hardswish", lanewise=True),
    Pointwise("hardtanh_backward.grad_input", "kept_where(self > min_val && self < max_val, grad_output)", stub="hardtanh_backward_stub", also=("hardtanh_backward",), opinfo=_FUNCTIONAL + "hardtanh", lanewise=True),
    Pointwise("hardshrink_backward.grad_input", "kept_where(self < -lambd || self > lambd, grad_out)", opinfo=_FUNCTIONAL + "hardshrink", lanewise=True),
    Pointwise("softshrink_backward.grad_input", "kept_where(self < -lambd || self > lambd, grad_output)", opinfo=_FUNCTIONAL + "softshrink", lanewise=True),
    Pointwise("logit_backward.grad_input", "logit_backward(grad_output, self, eps)", scalars="eps", stub="logit_backward_stub", opinfo="logit"),
    # ATen's host function hands the sigmoid of the gate in, and out a half.
    Pointwise("glu_backward.grad_input", "(1 - gate) * gate * self * grad_output", inputs="gate self grad_output", stub="glu_backward_stub", function="glu_backward_cpu_out", opinfo=_FUNCTIONAL + "glu", lanewise=True),
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
