"""Differences from the CPU that are on purpose, each with its reason.

A case that meets one counts as skipped under this reason; it is never left out
before it ran.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator

import torch
from fuzz.execute import CPU, Machine
from fuzz.program import Program, Ref, references
from fuzz.tensors import Input
from torch import Tensor

# Op (the subject of a case) and why no case is made of it.
EXCLUDED = {
    "jiterator_unary": "writes CUDA kernels",
    "jiterator_binary": "writes CUDA kernels",
    "jiterator_4inputs_with_extra_args": "writes CUDA kernels",
    "jiterator_binary_return_by_ref": "writes CUDA kernels",
    "jiterator_2inputs_2outputs": "writes CUDA kernels",
    "tensor_split": "wants its indices on the CPU",
    "histogramdd": "its out is a list, whatever the database says",
}


_CASTS = ("byte", "char", "short", "int", "long", "to", "_to_copy", "type_as")
_BESSEL = ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")
_RANKS = ("sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode")
_NORMS = ("native_layer_norm", "native_group_norm", "native_batch_norm", "_batch_norm")
_ANGULAR = ("pow", "exp", "sin", "cos", "sinh", "cosh")
_OWN_STRIDES = ("convolution", "attention", "conv1d", "conv2d", "conv3d", "packed")


def free_strides(program: Program) -> str:
    """Why strides are not judged; empty where they are."""
    if program.subject == "recurrence":
        return "layers walk batch-first input as it is; the CPU transposes the result"
    if own_strides(program) and _has_out(program):
        return "in FakeTensorMode an out that is resized is contiguous"
    return ""


def own_strides(program: Program) -> str:
    """Why strides may be FakeTensorMode's and not the CPU's; empty where they have to
    be these."""
    names = [program.subject, *(step.target for step in program.steps)]
    if any(word in name for word in _OWN_STRIDES for name in names):
        return "the CPU's oneDNN and flash kernels choose them; FakeTensorMode differs"
    if any("conv_transpose" in name for name in names):
        return "the CPU's oneDNN chooses them; FakeTensorMode differs"
    if any("max_pool1d" in name for name in names):
        return "the CPU's own of no gradient is contiguous; FakeTensorMode differs"
    if program.subject == "nn.functional.glu":
        return "as in FakeTensorMode the gradient has its input's memory format"
    pointwise = ("logsigmoid", "rrelu", "binary_cross_entropy_with_logits")
    if any(name in program.subject for name in pointwise):
        return "as on CUDA a pointwise op keeps its input's order; the CPU's does not"
    return ""


def value(program: Program, name: str, reason: str, shape: torch.Size) -> str:
    """Why this difference of a value is accepted; empty where it is not."""
    op = program.subject.removeprefix("special.").partition(":")[0]
    exact = "elements differ, the first" in reason
    if own_strides(program) and _has_step(program, "as_strided"):
        return "elements are seen by strides that are FakeTensorMode's, not the CPU's"
    if "memory of" in name and own_strides(program) and _has_out(program):
        return "an out that is resized has its elements in FakeTensorMode's order"
    if exact and op in _CASTS and any(map(_beyond_integers, program.inputs.values())):
        return "C leaves the conversion of NaN, and of what does not fit, undefined"
    if _is_normalized_into_another_format(program, name):
        return "torch's CPU writes a batch norm's out in its input's memory format"
    if op in _BESSEL:
        return "torch's CPU is 4e-7 off beyond 5; test_math.py judges these by mpmath"
    if "hardsigmoid" in op and "gradient" in name and _has(program, torch.float64):
        return "torch's CPU has 1/6 in float32"
    if "polygamma" in op and (_has(program, torch.float64) or ": inf," in reason):
        return "torch's CPU is 1e-13 off, and finite at poles; test_math.py has mpmath"
    if op == "sinc" and not program.inputs[0].values.is_floating_point():
        return "the sine of a multiple of pi is what its rounding leaves"
    if (
        op in ("prod", "masked.prod")
        and "differ in NaN" in reason
        and (_has_complex(program) or _overflow_and_zero(program))
    ):
        return "past the largest number, the order of factors decides"
    infinities = [_is_complex_infinity(given) for given in program.inputs.values()]
    if (
        op in ("add", "sub", "rsub", "__radd__", "__rsub__")
        and "differ in NaN" in reason
        and any(infinities)
    ):
        return "the CPU multiplies by alpha, and infinity by its imaginary 0"
    has_real = any(not given.values.is_complex() for given in program.inputs.values())
    if (
        op in ("mul", "__rmul__", "pow", "float_power", "__rpow__", "ldexp")
        and "differ in NaN" in reason
        and has_real
        and (any(infinities) or ("mul" not in op and _has_infinite_power(program)))
    ):
        return "Intel's compiler leaves out the product with a real number's part 0"
    no_integer = r"expected (?:0|-128|-32768|-2147483648|-\d{19})$"
    if op == "masked.logsumexp" and exact and re.search(no_integer, reason):
        return "the logarithm of no sum is -inf, which fits no integer"
    if _has_step(program, "linalg.vector_norm") and _relative(reason) < 1e-11:
        return "torch's CPU adds the squares one after the other, which is 4e-15 off"
    if _is_antialiased(program) and shape[-1:] == (1,):
        return "torch's CPU repeats the first row where the width is 1"
    if op == "complex sequence" and _is_imaginary_of_product(program):
        return "a rounding of large real parts beside imaginary ones that cancel"
    if op == "complex sequence" and exact and _has_step(program, "eq"):
        return "whether computed complex numbers are equal, roundings decide"
    other_sign = re.search(r": (-?)inf, expected (?!\1inf)-?inf$", reason)
    if op == "complex sequence" and other_sign and _has_step(program, *_ANGULAR):
        return "of huge numbers the rounding of an angle decides infinities' signs"
    if "attention" in op and "gradient" in name and _relative(reason) < 5e-5:
        return "weights are computed again, from scores summed in another order"
    is_of_tanh = "gradient" in name and _calls(program, "rnn_tanh")
    if is_of_tanh and _relative(reason) < 2e-4:
        return "1 - h^2 cancels near 1, where a driver's tanh may be a unit off"
    if (
        op == "complex sequence"
        and ", expected nan" in reason
        and _has_step(program, "add", "sub")
    ):
        return "the CPU multiplies by alpha, and infinity by its imaginary 0"
    is_mean = op == "complex sequence" and _has_step(program, "mean")
    if ", expected nan" in reason and (is_mean or (op == "mean" and any(infinities))):
        return "as on CUDA parts are divided; the CPU divides by a complex count"
    if op == "expm1" and ", expected nan" in reason and any(infinities):
        return "as in C exp of inf + 0i is inf + 0i; the CPU multiplies inf by 0"
    if op == "gcd" and any(map(_has_least_integer, program.inputs.values())):
        return "no integer holds the least one's magnitude, and C leaves it undefined"
    if op == "fourier" and _has_step(program, "pow"):
        return "of a power of a negative number the sign of an imaginary 0 decides"
    if op == "fourier" and "differ in NaN" in reason and _has_infinite_product(program):
        return "of infinities that a transform adds the order decides which cancel"
    if ("avg_pool3d" in op or op == "narrow_copy") and _has_out(program):
        return "torch's CPU writes a strided out as if it were contiguous"
    if "sequence" in op and _resizes_out_over_what_it_reads(program):
        return "an out is resized over what its op reads; the order of elements decides"
    is_batch_norm = op in ("native_batch_norm", "_native_batch_norm_legit")
    if is_batch_norm and _has_out(program) and _strided(program):
        return "torch's CPU, given an out, reads a strided input as if contiguous"
    if op == "native_group_norm" and ", expected nan" in reason and _strided(program):
        return "torch's CPU reads strided weights and biases as if contiguous"
    if op == "zeta" and ": 0.0, expected nan" in reason:
        return "of a large exponent torch's CPU is NaN, and not 0"
    if op in ("igamma", "igammac") and ": nan, expected" in reason:
        return "torch's CPU loses the NaN beside an infinity"
    if op in ("igammac", "gammaincc") and "too far" in reason and _has_tiny(program, 0):
        return (
            "of a tiny order torch's CPU loses gamma's slope; test_math.py has mpmath"
        )
    is_of_norm = "gradient" in name and _calls(program, "batch_norm")
    if is_of_norm and _has_step(program, "unsqueeze"):
        return "torch's CPU permutes a gradient of volumes whose last stride is 1"
    if is_of_norm and ", expected nan" in reason and _has_strided_vector(program):
        return "torch's CPU reads a strided weight as if contiguous"
    is_of_doubles = _has(program, torch.float64) and _relative(reason) < 1e-12
    if is_of_doubles and _calls(program, "batch_norm"):
        return "torch's CPU adds a channel's doubles one after the other"
    if op == "torch.compile" and "strides" in reason:
        return "Inductor chooses the strides of views' results, on the CPU as well"
    if op == "torch.compile" and "too far" in reason and _calls(program, "gelu"):
        return (
            "Inductor's gelu cancels in its tail, on the CPU as well; eager's does not"
        )
    if op == "torch.compile" and exact and _has_half(program):
        return "Inductor does not round between ops of half types, on the CPU as well"
    if (
        op == "torch.compile"
        and _calls(program, "tanh")
        and _is_one_beside_zero(reason)
    ):
        return "torch's CPU rounds tanh to 1 from 8.66 on, exactly it is from 9.01 on"
    if op == "torch.compile" and exact and re.search("expected -(2|9)[0-9]+$", reason):
        return "C leaves the conversion of NaN, and of what does not fit, undefined"
    if op == "airy_ai" and "too far" in reason:
        return "its phase at -30,000 has no digit in float32; test_math.py has the rest"
    if "_polynomial_" in op and "differ in NaN" in reason and _has_nan(program):
        return "of NaN torch's CPU returns what it never wrote"
    if "strides" in reason and 1 in shape and _is_of_integers(program):
        return (
            "of sizes of 1; the CPU converts integers to floats in tensors of its own"
        )
    if op.startswith("std") and "differ in NaN" in reason:
        return "the CPU squares in double; as on CUDA a square may overflow"
    if op.endswith("normalization") and "gradient" in name and "strides" in reason:
        return "as on CUDA a gradient of group_norm is contiguous"
    if any(word in op for word in _NORMS) and "dtype torch.float32" in reason:
        return "as on CUDA and in FakeTensorMode, statistics of half types are float32"
    if op.startswith("signal.windows") and "too far" in reason:
        return "sums of cosines that cancel at the ends, of no input to be perturbed"
    if exact and op in _RANKS:
        return "the CPU picks any of equal elements; test_sorting.py wants the first"
    return ""


def integers_apart(program: Program) -> int:
    """By how much elements of integers may differ from the CPU's."""
    resizes = any(
        "upsample" in step.target or "interpolate" in step.target
        for step in program.steps
    )
    return 1 if resizes else 0  # of uint8; the CPU rounds after each direction


def _beyond_integers(given: Input) -> bool:
    values = given.values
    if values.is_complex():
        values = values.real
    if not values.is_floating_point():
        return False
    return not bool((values.abs() < 2**7).all()) or bool((values < 0).any())


def _has(program: Program, dtype: torch.dtype) -> bool:
    return any(given.values.dtype == dtype for given in program.inputs.values())


def _has_half(program: Program) -> bool:
    return _has(program, torch.float16) or _has(program, torch.bfloat16)


def _has_complex(program: Program) -> bool:
    return any(given.values.is_complex() for given in program.inputs.values())


def _has_out(program: Program) -> bool:
    return any("out" in step.kwargs for step in program.steps)


def _resizes_out_over_what_it_reads(program: Program) -> bool:
    """Whether a step's out takes another size in memory that another argument has.
    torch looks for overlaps before it resizes."""
    machine = Machine(program.inputs, CPU)
    for step in program.steps:
        out = step.kwargs.get("out")
        wanted = machine.values.get(out.name) if isinstance(out, Ref) else None
        size = wanted.size() if torch.is_tensor(wanted) else None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                machine.do(step)
        except Exception:  # the judge compares errors
            return False
        if size is None or wanted.size() == size:
            continue
        memory = wanted.untyped_storage().data_ptr()
        for name in references(step) - {out.name}:
            read = machine.values[name]
            if torch.is_tensor(read) and read.untyped_storage().data_ptr() == memory:
                return True
    return False


def _batch_norms_into(program: Program) -> Iterator[tuple[Tensor, Tensor, bool, str]]:
    """Input, out, whether it trains and the out's name, of steps that are a batch
    norm's out variant."""
    machine = Machine(program.inputs, CPU)
    for step in program.steps:
        outs = step.kwargs.get("out")
        if "native_batch_norm" in step.target and isinstance(outs, (tuple, list)):
            given, out = (
                machine.values.get(ref.name) for ref in (step.args[0], outs[0])
            )
            trains = next(value for value in step.args if isinstance(value, bool))
            if torch.is_tensor(given) and torch.is_tensor(out):
                yield given, out, trains, str(outs[0])
        try:
            machine.do(step)
        except Exception:  # the judge compares errors
            return


def _is_dense(tensor: Tensor) -> bool:
    formats = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
    return any(tensor.is_contiguous(memory_format=each) for each in formats)


def _is_evaluated_into_gaps(program: Program) -> bool:
    return any(
        not trains and not (_is_dense(given) and _is_dense(out))
        for given, out, trains, _ in _batch_norms_into(program)
    )


def _is_normalized_into_another_format(program: Program, name: str) -> bool:
    return any(
        name.split()[-1] == into
        and given.is_contiguous() != out.is_contiguous()
        and _is_dense(given)
        and _is_dense(out)
        for given, out, _, into in _batch_norms_into(program)
    )


def _overflow_and_zero(program: Program) -> bool:
    """Whether two finite numbers' product is infinite, beside a zero."""
    for given in program.inputs.values():
        values = given.values
        if values.is_floating_point() and (values == 0).any():
            finite = values[values.isfinite()].double().abs().flatten()
            if (
                finite.topk(min(2, len(finite))).values.prod()
                > torch.finfo(values.dtype).max
            ):
                return True
    return False


def _has_infinite_product(program: Program) -> bool:
    """Whether a product of finite numbers is infinite on the CPU."""
    machine = Machine(program.inputs, CPU)
    for step in program.steps:
        machine.do(step)
        if step.target == "prod":
            factors, product = (
                machine.values[n] for n in (step.args[0].name, step.result)
            )
            if factors.isfinite().all() and not product.isfinite().all():
                return True
    return False


def _strided(program: Program) -> bool:
    return any(given.layout.steps for given in program.inputs.values())


def _has_strided_vector(program: Program) -> bool:
    return any(
        given.layout.steps and given.values.dim() == 1
        for given in program.inputs.values()
    )


def _has_least_integer(given: Input) -> bool:
    dtype = given.values.dtype
    if dtype not in (torch.int32, torch.int64):
        return False
    return bool((given.values == torch.iinfo(dtype).min).any())


def _has_infinite_power(program: Program) -> bool:
    """A complex number whose logarithm is infinite, or its exponential."""
    values = [given.values for given in program.inputs.values()]
    return any(
        v.is_complex() and bool(((v == 0) | (v.real.abs() > 88)).any()) for v in values
    )


def _is_complex_infinity(given: Input) -> bool:
    return given.values.is_complex() and bool(given.values.isinf().any())


def _has_nan(program: Program) -> bool:
    return any(bool(given.values.isnan().any()) for given in program.inputs.values())


def _has_tiny(program: Program, name: int) -> bool:
    magnitudes = program.inputs[name].values.abs()
    return bool(((magnitudes > 0) & (magnitudes < 1e-6)).any())


def _is_one_beside_zero(reason: str) -> bool:
    return bool(re.search(r": (0, expected -?1|-?1, expected 0)$", reason))


def _is_antialiased(program: Program) -> bool:
    return any(
        "_aa" in step.target or step.kwargs.get("antialias") for step in program.steps
    )


def _is_imaginary_of_product(program: Program) -> bool:
    targets = [step.target for step in program.steps]
    takes = any(step.args[1:] == ("imag",) for step in program.steps)
    return (takes or "view_as_real" in targets) and "matmul" in targets


def _has_step(program: Program, *targets: str) -> bool:
    return any(step.target.strip("_.") in targets for step in program.steps)


def _calls(program: Program, name: str) -> bool:
    """In a step, or in a compiled one's function."""
    return any(name in str((step.target, step.args)) for step in program.steps)


def _relative(reason: str) -> float:
    """The relative error of which the judge tells; infinite if it tells of none."""
    whole = re.search(r"error ([^,]+), CPU's own", reason)
    if whole:
        return float(whole[1])
    worst = re.search(r"worst (\S+), float64 (\S+)$", reason)
    if worst:
        return abs(float(worst[1]) / float(worst[2]) - 1)
    return math.inf


def _is_of_integers(program: Program) -> bool:
    return not any(
        given.values.is_floating_point() for given in program.inputs.values()
    )


def error(program: Program, mine: Exception | None, cpu: Exception | None) -> str:
    """Why this difference of errors is accepted; empty where it is not."""
    if isinstance(cpu, NotImplementedError) and mine is None:
        return "the device takes a dtype that the CPU does not"
    if "std_var_all: Unsupported dtype" in str(cpu) and mine is None:
        return "the CPU's variance of a half to one number in another dtype raises"
    is_refused = type(mine) is type(cpu) or "for customized tensor" in str(mine)
    if "with arguments from the 'Sparse" in str(cpu) and is_refused:
        return "both refuse a sparse layout; the CPU lists the backends of its kernels"
    if (
        re.search(
            r"is_contiguous\(memory_format\) to be true|"
            r"grad_(weight|input) must be contiguous",
            str(cpu),
        )
        and mine is None
    ):
        return "the device takes a layout that the CPU does not"
    if "does not have a device" in str(cpu) and mine is None:
        return "torch's CPU loses the gradient of a group_norm with a bias alone"
    is_check = "to be true, but got false" in str(cpu) or "INTERNAL ASSERT" in str(cpu)
    if is_check and type(mine) is type(cpu):
        return "the CPU shows the text of its check"
    is_mean = '"mean" not implemented' in str(mine) or (
        program.subject == "mean" and "value cannot be converted" in str(mine)
    )
    if is_mean and "can't be cast" in str(cpu):
        return "as on CUDA, a mean into integers is refused in other words"
    is_of_wider_out = re.search(
        "expected scalar type Float but found (ComplexFloat|Double)", str(mine)
    )
    if is_of_wider_out and cpu is None and program.subject == "linalg.solve_triangular":
        return "the CPU takes an out of a wider dtype only where it has gaps"
    is_of_statistics = "expected scalar type" in str(mine) and cpu is None
    if is_of_statistics and _is_evaluated_into_gaps(program):
        return "the CPU takes statistics of any dtype only beside an out with gaps"
    names_kernel = any(name in str(cpu) for name in ("shift_cpu", "neg_cpu"))
    if names_kernel and isinstance(mine, NotImplementedError):
        return "the CPU names its kernel, not the op"
    if "params, grads and states must have same" in str(mine) and cpu is None:
        return "as on CUDA, a fused step wants dense tensors; the CPU reads beyond"
    if program.subject == "torch.compile" and "can require gradients" in str(mine):
        return "Inductor, where it looks for products to pad, trains bool operands"
    if program.subject == "torch.compile" and "on a bool tensor" in str(mine):
        return "Inductor, where it scales a softmax, negates bool, on the CPU as well"
    is_bool_exponent = "with a bool tensor is not supported" in str(cpu)
    if program.subject == "torch.compile" and is_bool_exponent and mine is None:
        return "Inductor subtracts 1 from a bool exponent, on the CPU as well"
    refusals = ("with two bool tensors", "to type int64_t without overflow")
    if program.subject == "torch.compile" and any(r in str(mine) for r in refusals):
        return "AOTAutograd's softmax refuses bool and integers, the CPU's not without rows"
    refused = isinstance(mine, NotImplementedError) and "'Complex" in str(mine)
    if program.subject in ("std", "var") and refused and _has_out(program):
        return "as on CUDA, no deviation is written as a complex number"
    if type(mine).__name__ == "BackendCompilerFailed" and cpu and str(cpu) in str(mine):
        return "Inductor raises the same error where it compiles"
    is_shared = "more than one element of the written-to" in str(mine) and cpu is None
    if is_shared and _calls(program, "batch_norm"):
        return "statistics that share memory are refused; the CPU writes them in turns"
    if "Output size is too small" in str(mine) and cpu is None:
        return "as of images, an empty output is refused; the CPU checks no volumes"
    if any("conv" in n for n in (program.subject, *(s.target for s in program.steps))):
        if "view size is not compatible" in str(mine) and cpu is None:
            return "the CPU's oneDNN chooses strides; here they are FakeTensorMode's"
        both = isinstance(mine, RuntimeError) and isinstance(cpu, RuntimeError)
        if both and not isinstance(mine, NotImplementedError):
            return "both refuse the sizes; the CPU's oneDNN checks in another order"
        if isinstance(mine, NotImplementedError) and _is_of_integers(program):
            return "as on CUDA, there is no convolution of integers"
    return ""
