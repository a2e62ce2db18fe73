// Fills a contiguous tensor with random numbers. A Philox block serves four
// elements, or two where an element takes 64 bits (IS_WIDE). A work-item draws one,
// or with LANES (16) PASSES times a vector of blocks.

#include "types.clh"
#include "lanes.clh"
#include "philox.clh"

#ifndef IS_WIDE
#define IS_WIDE 0
#endif
#if IS_WIDE
#define ELEMENTS 2
#else
#define ELEMENTS 4
#endif
#ifndef DIGITS
#define DIGITS 24  // bits of a uniform number: the significand of DTYPE
#endif

// Arithmetic of the distributions, whatever dtype they are stored in.
#ifndef REAL_IS_DOUBLE
#define REAL_IS_DOUBLE 0
#endif
#if REAL_IS_DOUBLE
typedef double real_t;
#else
typedef float real_t;
#endif

#define PARAMETERS(type) TENSOR(type, out), const ulong count, const ulong seed, const ulong offset

#if LANES == 1
#define GROUP 64
#define PASSES 1
// An index that is not constant would keep an item's words in private memory.
#define EACH_ELEMENT _Pragma("unroll")
typedef uint bits_t;
typedef real_t reals_t;
#define REALS(x) ((real_t)(x))
#define DRAW_BITS                                                         \
  const uint4 block = philox(seed, offset, first / ELEMENTS);             \
  bits_t bits[4];                                                         \
  vstore4(block, 0, bits);
#define KEEP(value)                                                       \
  EACH_ELEMENT                                                            \
  for (int i = 0; i < ELEMENTS; ++i)                                      \
    if (first + i < count) STORE(target, first + i, (compute_t)value[i]);
#else
#define GROUP 1
#define PASSES 64
#define EACH_ELEMENT
typedef uint16 bits_t;
typedef float16 reals_t;
#define REALS(x) convert_float16(x)
#define DRAW_BITS                                                         \
  bits_t bits[4];                                                         \
  philox_lanes(seed, offset, first / ELEMENTS, bits);
#define KEEP_LANES CONCAT(store_some_, OUT_DTYPE)
// Element 4 l + i is lane l of value i.
#define QUARTER(a, b, c, d, l0, l1, l2, l3)                               \
  (float16)(a.l0, b.l0, c.l0, d.l0, a.l1, b.l1, c.l1, d.l1,               \
            a.l2, b.l2, c.l2, d.l2, a.l3, b.l3, c.l3, d.l3)
#define KEEP_QUARTER(value, number, l0, l1, l2, l3)                       \
  if (first + number * LANES < count)                                     \
    KEEP_LANES(target + first + number * LANES,                           \
               QUARTER(value[0], value[1], value[2], value[3], l0, l1, l2, l3), \
               (int)min((ulong)LANES, count - first - number * LANES));
#define KEEP(value)                                                       \
  KEEP_QUARTER(value, 0, s0, s1, s2, s3)                                  \
  KEEP_QUARTER(value, 1, s4, s5, s6, s7)                                  \
  KEEP_QUARTER(value, 2, s8, s9, sa, sb)                                  \
  KEEP_QUARTER(value, 3, sc, sd, se, sf)
#endif

#define EACH_DRAW_OF(type)                                                \
  global type *target = POINTER(out);                                     \
  const ulong item = (ulong)PASSES * LANES * ELEMENTS;                    \
  const ulong end = min(count, (get_global_id(0) + 1) * item);            \
  for (ulong first = get_global_id(0) * item; first < end;                \
       first += LANES * ELEMENTS)
#define EACH_DRAW EACH_DRAW_OF(out_t)

#if IS_WIDE
#define BITS(i) ((ulong)bits[2 * (i)] << 32 | bits[2 * (i) + 1])
#define UNIFORM(i) (REALS(BITS(i) >> (64 - DIGITS)) / (real_t)((ulong)1 << DIGITS))
#else
#define BITS(i) bits[i]
#define UNIFORM(i) (REALS(bits[i] >> (32 - DIGITS)) / (real_t)((ulong)1 << DIGITS))
#endif

#define FILL(expression)                                                  \
  EACH_DRAW {                                                             \
    DRAW_BITS                                                             \
    reals_t value[ELEMENTS];                                              \
    EACH_ELEMENT                                                          \
    for (int i = 0; i < ELEMENTS; ++i) value[i] = expression;             \
    KEEP(value)                                                           \
  }

#define DISTRIBUTION kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void

// [from, to): a value that rounding lifts to `to` becomes `from`. With LANES only
// of float32, which storing does not round.
DISTRIBUTION random_uniform(PARAMETERS(out_t), const real_t from, const real_t to) {
#if LANES == 1
  EACH_DRAW {
    DRAW_BITS
    EACH_ELEMENT
    for (int i = 0; i < ELEMENTS; ++i) {
      if (first + i < count) {
        const real_t value = UNIFORM(i) * (to - from) + from;
        STORE(target, first + i, (compute_t)value);
        if ((real_t)LOAD(target, first + i) >= to) {
          STORE(target, first + i, (compute_t)from);
        }
      }
    }
  }
#else
  EACH_DRAW {
    DRAW_BITS
    reals_t value[ELEMENTS];
    for (int i = 0; i < ELEMENTS; ++i) {
      value[i] = UNIFORM(i) * (to - from) + from;
      value[i] = value[i] >= to ? (reals_t)from : value[i];
    }
    KEEP(value)
  }
#endif
}

// [0, 1]: small numbers have all bits of a word, and what is almost 1 is 1.
DISTRIBUTION random_unit(PARAMETERS(out_t), const real_t unused, const real_t none) {
  FILL(UNIFORM(i))
}

// Two normal deviates of two uniform numbers in [0, 1): 1 - x has a logarithm.
// Box and Muller, A note on the generation of random normal deviates, 1958.
inline void normal_pair(
    reals_t x, reals_t y, real_t mean, real_t deviation, reals_t *pair) {
  const reals_t radius = sqrt((real_t)-2 * log((real_t)1 - x));
  pair[0] = mean + deviation * radius * cospi(2 * y);
  pair[1] = mean + deviation * radius * sinpi(2 * y);
}

DISTRIBUTION random_normal(PARAMETERS(out_t), const real_t mean, const real_t deviation) {
  EACH_DRAW {
    DRAW_BITS
    reals_t value[ELEMENTS];
    _Pragma("unroll")
    for (int i = 0; i < ELEMENTS; i += 2) {
      normal_pair(UNIFORM(i), UNIFORM(i + 1), mean, deviation, value + i);
    }
    KEEP(value)
  }
}

DISTRIBUTION random_log_normal(PARAMETERS(out_t), const real_t mean, const real_t deviation) {
  EACH_DRAW {
    DRAW_BITS
    reals_t value[ELEMENTS];
    _Pragma("unroll")
    for (int i = 0; i < ELEMENTS; i += 2) {
      normal_pair(UNIFORM(i), UNIFORM(i + 1), mean, deviation, value + i);
      value[i] = exp(value[i]);
      value[i + 1] = exp(value[i + 1]);
    }
    KEEP(value)
  }
}

DISTRIBUTION random_bernoulli(PARAMETERS(out_t), const real_t p, const real_t unused) {
#if IS_WIDE
  FILL(UNIFORM(i) < p ? (reals_t)1 : (reals_t)0)
#else
  // All 32 bits: the significand's would round a small probability up.
  const ulong hits = (ulong)rint(p * (real_t)((ulong)1 << 32));
  const uint last = (uint)(hits - 1);
  const reals_t hit = (reals_t)(hits > 0 ? 1 : 0);
  FILL(bits[i] <= last ? hit : (reals_t)0)
#endif
}

// The middle of the uniform number's cell: never 0, nor 1, to which the middle of
// the last cell would round, as float16 would round that of the first to 0.
#define CELL (1 / (real_t)((ulong)1 << DIGITS))
#define OPEN_UNIFORM(i) clamp(UNIFORM(i) + CELL / 2, (reals_t)CELL, (reals_t)(1 - CELL))

DISTRIBUTION random_exponential(PARAMETERS(out_t), const real_t rate, const real_t unused) {
  FILL(-log1p(-OPEN_UNIFORM(i)) / rate)
}

DISTRIBUTION random_cauchy(PARAMETERS(out_t), const real_t median, const real_t sigma) {
  FILL(median + sigma * tanpi(OPEN_UNIFORM(i) - (real_t)0.5f))
}

// Trials up to the first success.
DISTRIBUTION random_geometric(PARAMETERS(out_t), const real_t p, const real_t unused) {
  FILL(fmax(ceil(log1p(-UNIFORM(i)) / log1p(-p)), (real_t)1))
}

#ifndef INTEGER_DTYPE
#define INTEGER_DTYPE OUT_DTYPE
#endif
typedef CONCAT(storage_, INTEGER_DTYPE) integer_t;

// base + [0, range); a range of zero stands for 2^64.
DISTRIBUTION random_integer(PARAMETERS(integer_t), const ulong range, const long base) {
#if LANES == 1
  EACH_DRAW_OF(integer_t) {
    DRAW_BITS
    EACH_ELEMENT
    for (int i = 0; i < ELEMENTS; ++i) {
      if (first + i < count) {
        const ulong number = range == 0 ? (ulong)BITS(i) : (ulong)BITS(i) % range;
        STORE(target, first + i, (compute_t)(base + (long)number));
      }
    }
  }
#else
  // Of at most 2^32, so that the quotient by this is at most one too small; there is
  // none of 2^32 itself.
  const uint divisor = (uint)range;
  const uint inverse =
      divisor == 0 ? 0 : (uint)min(((ulong)1 << 32) / divisor, (ulong)UINT_MAX);
  EACH_DRAW_OF(integer_t) {
    DRAW_BITS
    uint numbers[ELEMENTS][LANES];
    for (int i = 0; i < ELEMENTS; ++i) {
      const bits_t rest = bits[i] - mul_hi(bits[i], (bits_t)inverse) * divisor;
      vstore16(rest >= divisor ? rest - divisor : rest, 0, numbers[i]);
    }
    const int end_here = (int)min((ulong)ELEMENTS * LANES, count - first);
    for (int i = 0; i < end_here; ++i) {
      target[first + i] = (integer_t)(base + (long)numbers[i % ELEMENTS][i / ELEMENTS]);
    }
  }
#endif
}

#if defined(GAMMA) || defined(LOG_GAMMA) || defined(POISSON) || defined(BINOMIAL)
#include "rejection.clh"
#endif
