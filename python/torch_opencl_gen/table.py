"""The entries of the op tables: one entry declares one op to every reader.

The generator turns them into registrations and kernel expressions, the tests
into cases, the documentation into rows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pointwise:
    """An elementwise op, computed by one OpenCL C expression.

    The expression is written over the names of the op's tensor arguments and
    numbers, each already converted to ``compute_t`` (the promoted dtype;
    float for half types), and its value is converted to the output's dtype.
    ``bool_``, ``integral`` replace it for those compute types; functions come
    from ``backend/common/math.clh`` or OpenCL C; a literal with a fraction is
    written ``REAL(0.5)``.

    Args:
        name: aten overload to register, an out-variant where there is one
            ("silu.out"); functional and in-place variants follow from it.
        expression: OpenCL C, for floating compute types and, unless replaced,
            for all.
        inputs: names of the tensor operands in the order ATen hands them to
            the kernel, where that is not the schema's order.
        scalars: names of the kernel's numbers in order, where they are not
            the schema's numbers.
        stub: the DispatchStub that ATen's host function calls ("clamp_stub").
            Without it the op is structured and runs on its meta function.
        function: ATen's exported host function for an op that is not
            structured, where it is not named after the overload.
        also: further overloads served by the same stub or expression.
        bool_: expression when the compute type is bool (uchar, 0 or 1).
        integral: expression when the compute type is an integer.
        complex_: expression when the compute type is complex, a pair of reals.
            Its functions are those of ``backend/common/complex.clh`` and
            ``complex_math.clh``, and its value is complex as well: of real and
            bool outputs the real part, or whether it is zero, is kept.
        dtypes: "floating" or "integral" (with bool) where only those have a
            meaning: others raise NotImplementedError.
        opinfo: name in torch's op_db where it differs from the op's.
        vectorizable: the expression also holds for vectors of floats, element by
            element. Drivers have vectors of exp, log and the like, which some
            make of no loop.
        clamp: "below", "above" or "both", of an op that only bounds its input
            by its numbers: in place it can be an epilogue of the launch that
            writes the input.
        keeps_numbers: a last operand of one element is not rounded to float16
            or bfloat16, where that is the dtype promoted to: as on the CPU.
        checks_scalars: numbers are values of the promoted dtype, and one that
            it does not hold raises. So it is of integral dtypes anyway.
        divides: the last operand is a divisor; among integers a zero raises.
        counts: the last operand, times its number, is added: to one integer
            in place that can be done by the batch normalisation that follows.
        moves: the value is that of an operand, whose bits it keeps: a NaN's, too.
    """

    name: str
    expression: str
    inputs: str = ""
    scalars: str = ""
    stub: str = ""
    function: str = ""
    also: tuple[str, ...] = ()
    bool_: str = ""
    integral: str = ""
    complex_: str = ""
    dtypes: str = ""
    opinfo: str = ""
    vectorizable: bool = False
    clamp: str = ""
    keeps_numbers: bool = False
    checks_scalars: bool = False
    divides: bool = False
    counts: bool = False
    moves: bool = False


@dataclass(frozen=True)
class Reduction:
    """A reduction over any dimensions: (identity, step, combine, result).

    Args:
        name: aten overload to register, an out-variant where there is one.
        stub: the DispatchStub that ATen's host function calls.
        state: C type of the accumulator.
        identity: accumulator of an empty range.
        step: accumulator after ``x`` (``compute_t``), which stands at
            ``index`` within its reduction, joins ``state``.
        combine: of two accumulators ``a`` and ``b``.
        result: the output from ``state`` and ``count``, the number of
            reduced elements.
        results: of an op with several outputs, instead of ``result``.
        scalars: names of the kernel's numbers.
        function: as in ``Pointwise``.
        also: further overloads served by the same stub.
        opinfo: as in ``Pointwise``.
        vectorizable: step and combine also hold for vectors of floating
            ``compute_t``, element by element.
        extreme: the function of two values that picks one, where ``state``
            is a value and its place.
        sums: ``combine`` is a sum of ``compute_t``.
        moments: ``state`` is a ``welford_t`` of the elements.
        of_floats: integers are refused, as inputs and as ``out=``.
        complex_: what becomes of complex inputs. "parts": real and imaginary
            parts are reduced by themselves; "magnitudes": their absolute
            values are; "host": ATen's host function makes them real. Or
            identity, step and combination of complex numbers.
    """

    name: str
    stub: str
    identity: str
    step: str
    combine: str
    state: str = "compute_t"
    result: str = "state"
    results: tuple[str, ...] = ()
    scalars: str = ""
    function: str = ""
    also: tuple[str, ...] = ()
    opinfo: str = ""
    vectorizable: bool = False
    extreme: str = ""
    sums: bool = False
    moments: bool = False
    of_floats: bool = False
    complex_: str | tuple[str, str, str] = ""
