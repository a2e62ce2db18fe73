"""The pointwise ops: one entry, one expression, one op."""

from torch_opencl_gen.table import Pointwise

UNARY = (
    Pointwise("neg.out", "-self"),
    Pointwise("exp.out", "exp(self)"),
    Pointwise("log.out", "log(self)"),
    Pointwise("sqrt.out", "sqrt(self)"),
    Pointwise("rsqrt.out", "rsqrt(self)"),
    Pointwise("sigmoid.out", "1 / (1 + exp(-self))"),
    Pointwise("tanh.out", "tanh(self)"),
    Pointwise(
        "abs.out",
        "fabs(self)",
        integral="self < 0 ? -self : self",
        bool_="self",
        stub="abs_stub",
        also=("abs", "abs_"),
    ),
)

ACTIVATION = (
    Pointwise(
        "threshold.out",
        "self <= threshold ? value : other",
        inputs="self other",
        opinfo="nn.functional.threshold",
    ),
)

BINARY = (
    Pointwise("add.out", "self + alpha * other"),
    Pointwise("sub.out", "self - alpha * other"),
    Pointwise("mul.out", "self * other"),
    Pointwise("div.out", "self / other", stub="div_true_stub"),
    Pointwise(
        "maximum.out",
        "maximum_nan(self, other)",
        stub="maximum_stub",
        also=("clamp_min.Tensor_out",),
    ),
    Pointwise(
        "minimum.out",
        "minimum_nan(self, other)",
        stub="minimum_stub",
        also=("clamp_max.Tensor_out",),
    ),
    Pointwise("pow.Tensor_Tensor_out", "power(self, exponent)"),
    Pointwise("pow.Tensor_Scalar_out", "power(self, exponent)"),
)

COMPARISON = tuple(
    # The meta function turns the Scalar overload's number into an operand.
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

TERNARY = (
    Pointwise("addcmul.out", "self + value * tensor1 * tensor2"),
    Pointwise("addcdiv.out", "self + value * (tensor1 / tensor2)"),
    Pointwise(
        "where.self_out",
        "condition ? self : other",
        stub="where_kernel",
        also=("where.self",),
    ),
)

BACKWARD = (
    Pointwise(
        "threshold_backward.grad_input",
        "self <= threshold ? 0 : grad_output",
        inputs="self grad_output",
        opinfo="nn.functional.threshold",
    ),
    Pointwise(
        "sigmoid_backward.grad_input",
        "grad_output * (1 - output) * output",
        opinfo="sigmoid",
    ),
    Pointwise(
        "tanh_backward.grad_input",
        "grad_output * (1 - output * output)",
        opinfo="tanh",
    ),
)

POINTWISE: tuple[Pointwise, ...] = (
    *UNARY,
    *ACTIVATION,
    *BINARY,
    *COMPARISON,
    *TERNARY,
    *BACKWARD,
)
