"""Fits the Chebyshev series and one polynomial of series.clh.

Run it to print the header; it needs mpmath, which torch brings along:

    python backend/common/fit_series.py > backend/common/series.clh

Every series is of a smooth remainder of a special function (what special.clh
and bessel.clh say at its use), over a variable mapped onto [-1, 1].
"""

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 40
NODES = 80

Real = mp.mpf
Function = Callable[[Real], Real]


def chebyshev(function: Function) -> list[Real]:
    """Coefficients of the interpolant at the Chebyshev nodes of [-1, 1]."""
    angles = [mp.pi * (k + mp.mpf(1) / 2) / NODES for k in range(NODES)]
    values = [function(mp.cos(angle)) for angle in angles]
    coefficients = [
        2
        * mp.fsum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=False))
        / NODES
        for j in range(NODES)
    ]
    coefficients[0] /= 2
    return coefficients


def on(low: float | Real, high: float | Real, function: Function) -> Function:
    """``function`` of a variable in [low, high] as one of t in [-1, 1]."""
    low, high = mp.mpf(low), mp.mpf(high)
    return lambda t: function((low + high) / 2 + t * (high - low) / 2)


def erfcx(x: Real) -> Real:
    if x > 30:  # exp(x * x) would need more digits than erfc keeps
        return mp.nsum(
            lambda n: (-1) ** int(n) * mp.fac2(2 * n - 1) / (2 * x * x) ** n, [0, 30]
        ) / (x * mp.sqrt(mp.pi))
    return mp.exp(x * x) * mp.erfc(x)


def erfcx_mapped(t: Real) -> Real:
    x = 4 * (1 + t) / (1 - t)
    return (1 + 2 * x) * erfcx(x)


def erf_inverse(w: Real) -> Real:
    """erfinv(y) / y with w = -log(1 - y * y), also where y rounds to 1."""
    if w == 0:
        return mp.sqrt(mp.pi) / 2
    with mp.workdps(40 + int(w / 2)):
        y = mp.sqrt(-mp.expm1(-w))
        if w < 40:
            return mp.erfinv(y) / y
        q = 1 - y
        x = mp.sqrt(w)
        for _ in range(12):  # Newton on log(erfc)
            tail = mp.erfc(x)
            x += tail * mp.log(tail / q) / (2 / mp.sqrt(mp.pi) * mp.exp(-x * x))
        return x / y


def modulus_phase(order: int) -> tuple[Function, Function]:
    """Hankel's P and x * Q of order 0 or 1, of z = 1 / x ** 2."""

    def both(z: Real) -> tuple[Real, Real]:
        if z == 0:
            return mp.mpf(1), mp.mpf(4 * order * order - 1) / 8
        x = 1 / mp.sqrt(z)
        scale = mp.sqrt(mp.pi * x / 2)
        j, y = mp.besselj(order, x) * scale, mp.bessely(order, x) * scale
        angle = x - (2 * order + 1) * mp.pi / 4
        c, s = mp.cos(angle), mp.sin(angle)
        return j * c + y * s, (y * c - j * s) * x

    return lambda z: both(z)[0], lambda z: both(z)[1]


def airy_modulus_phase() -> tuple[Function, Function]:
    """As for Bessel: of Ai(-x), over 1 / zeta ** 2 with zeta = 2/3 x^(3/2)."""

    def both(z: Real) -> tuple[Real, Real]:
        if z == 0:
            return mp.mpf(1), mp.mpf(5) / 72
        zeta = 1 / mp.sqrt(z)
        x = (3 * zeta / 2) ** (mp.mpf(2) / 3)
        scale = mp.sqrt(mp.pi) * mp.root(x, 4)
        a, b = mp.airyai(-x) * scale, mp.airybi(-x) * scale
        angle = zeta - mp.pi / 4
        c, s = mp.cos(angle), mp.sin(angle)
        return a * c - b * s, (a * s + b * c) * zeta

    return lambda z: both(z)[0], lambda z: both(z)[1]


def airy_decay(inverse: Real) -> Real:
    """2 sqrt(pi) x^(1/4) exp(zeta) Ai(x) of 1 / zeta."""
    if inverse == 0:
        return mp.mpf(1)
    zeta = 1 / inverse
    x = (3 * zeta / 2) ** (mp.mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * mp.root(x, 4) * mp.exp(zeta) * mp.airyai(x)


def even(function: Function, limit: Function | Real) -> Function:
    """``function`` of x as one of x * x, with its limit at 0."""
    return lambda z: function(mp.sqrt(z)) if z > 0 else mp.mpf(limit)


def inverse(function: Function, limit: Real) -> Function:
    """``function`` of x as one of 1 / x, with its limit at infinity."""
    return lambda z: function(1 / z) if z > 0 else mp.mpf(limit)


def series() -> dict[str, Function]:
    i, j, k, y = mp.besseli, mp.besselj, mp.besselk, mp.bessely
    euler = mp.euler - mp.log(2)
    p0, q0 = modulus_phase(0)
    p1, q1 = modulus_phase(1)
    pa, qa = airy_modulus_phase()
    tail_i, tail_k = 1 / mp.sqrt(2 * mp.pi), mp.sqrt(mp.pi / 2)
    zeta2 = 2 * mp.sqrt(2) * 2 / 3
    root5 = mp.sqrt(5)
    two_over_pi = 2 / mp.pi
    z0 = on(mp.mpf(0), mp.mpf(1) / 64, p0)
    return {
        "erfcx_series": erfcx_mapped,
        "erf_inverse_center": on(0, 5, erf_inverse),
        "erf_inverse_tail": on(root5, 6.25, lambda s: erf_inverse(s * s) / s),
        "erf_inverse_far": on(6.25, 27.5, lambda s: erf_inverse(s * s) / s),
        "i0_near": on(0, 8, lambda x: mp.exp(-x) * i(0, x)),
        "i0_far": on(
            0, 0.125, inverse(lambda x: mp.sqrt(x) * mp.exp(-x) * i(0, x), tail_i)
        ),
        "i1_near": on(
            0, 8, lambda x: mp.exp(-x) * i(1, x) / x if x > 0 else mp.mpf(0.5)
        ),
        "i1_far": on(
            0, 0.125, inverse(lambda x: mp.sqrt(x) * mp.exp(-x) * i(1, x), tail_i)
        ),
        "k0_near": on(
            0, 4, even(lambda x: k(0, x) + mp.log(x / 2) * i(0, x), -mp.euler)
        ),
        "k0_far": on(
            0, 0.5, inverse(lambda x: mp.sqrt(x) * mp.exp(x) * k(0, x), tail_k)
        ),
        "k1_near": on(0, 4, even(lambda x: x * (k(1, x) - mp.log(x / 2) * i(1, x)), 1)),
        "k1_far": on(
            0, 0.5, inverse(lambda x: mp.sqrt(x) * mp.exp(x) * k(1, x), tail_k)
        ),
        "j0_near": on(0, 64, even(lambda x: j(0, x), 1)),
        "j1_near": on(0, 64, even(lambda x: j(1, x) / x, 0.5)),
        "y0_near": on(
            0,
            64,
            even(
                lambda x: y(0, x) - two_over_pi * mp.log(x) * j(0, x),
                two_over_pi * euler,
            ),
        ),
        "y1_near": on(
            0,
            64,
            even(
                lambda x: (y(1, x) - two_over_pi * (mp.log(x) * j(1, x) - 1 / x)) / x,
                two_over_pi * (euler / 2 - mp.mpf(1) / 4),
            ),
        ),
        "p0_far": z0,
        "q0_far": on(0, mp.mpf(1) / 64, q0),
        "p1_far": on(0, mp.mpf(1) / 64, p1),
        "q1_far": on(0, mp.mpf(1) / 64, q1),
        "airy_decay": on(0, 1 / zeta2, airy_decay),
        "airy_middle": on(-3, 2, mp.airyai),
        "airy_waves": on(-8, -3, mp.airyai),
        "airy_p_far": on(0, 1 / (2 * mp.mpf(8) ** 1.5 / 3) ** 2, pa),
        "airy_q_far": on(0, 1 / (2 * mp.mpf(8) ** 1.5 / 3) ** 2, qa),
        "log_gamma_near": on(0.5, 3, lambda x: mp.loggamma(x) / ((x - 1) * (x - 2))),
    }


# normal_tail: P(X > x) of a standard normal X is exp(-x * x / 2) q R(w), with
# q = 1 / (x + NORMAL_SHIFT) and w = (NORMAL_SHIFT - NORMAL_SLOPE x) q, which falls from
# 1 to -1 while x goes from 0 to where float is 0. R's error is 1e-8 at this degree.
NORMAL_SHIFT = mp.mpf(4)
NORMAL_LIMIT = mp.mpf(14.5)
NORMAL_DEGREE = 9


def normal_tail() -> tuple[Real, list[Real]]:
    """NORMAL_SLOPE and the coefficients of R's powers."""
    near, far = 1 / NORMAL_SHIFT, 1 / (NORMAL_LIMIT + NORMAL_SHIFT)

    def remainder(q: Real) -> Real:
        x = 1 / q - NORMAL_SHIFT
        return mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2)) / (2 * q)

    series = chebyshev(on(far, near, remainder))[: NORMAL_DEGREE + 1]
    powers = [mp.mpf(0)] * len(series)
    previous, current = [mp.mpf(0)], [mp.mpf(1)]  # T(-1) is not needed
    for k, coefficient in enumerate(series):
        for n, c in enumerate(current):
            powers[n] += coefficient * c
        factor = 1 if k == 0 else 2
        following = [mp.mpf(0)] + [factor * c for c in current]
        for n, c in enumerate(previous):
            following[n] -= c
        previous, current = current, following
    return (near + far) / (near - far), powers


def truncated(coefficients: list[Real], bits: int) -> list[Real]:
    """Without the tail that a format of so many bits cannot see."""
    threshold = max(abs(c) for c in coefficients) * mp.mpf(2) ** -bits
    count = max(n for n, c in enumerate(coefficients) if abs(c) > threshold) + 1
    return coefficients[:count]


def array(name: str, coefficients: list[Real], digits: int, suffix: str) -> str:
    numbers = [mp.nstr(c, digits) for c in coefficients]
    numbers = [n if "." in n or "e" in n else n + ".0" for n in numbers]
    lines, line = [], "   "
    for number in numbers:
        word = f" {number}{suffix},"
        if len(line) + len(word) > 80:
            lines.append(line)
            line = "   "
        line += word
    lines.append(line)
    body = "\n".join(lines)
    return f"static constant compute_t {name}[] = {{\n{body}\n}};"


def main() -> None:
    print("// Chebyshev series of special functions, made by fit_series.py.\n")
    fitted = {name: chebyshev(function) for name, function in series().items()}
    print("#if COMPUTE_IS_DOUBLE")
    for name, coefficients in fitted.items():
        print(array(name, truncated(coefficients, 56), 19, ""))
    print("#else")
    for name, coefficients in fitted.items():
        print(array(name, truncated(coefficients, 27), 10, "f"))
    slope, powers = normal_tail()
    for name, value in (("SHIFT", NORMAL_SHIFT), ("SLOPE", slope)):
        print(f"#define NORMAL_{name} {mp.nstr(value, 10)}f")
    print(array("normal_tail_powers", powers, 10, "f"))
    print("#endif")


if __name__ == "__main__":
    main()
