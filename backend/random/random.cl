// Fills a contiguous tensor with random numbers. One work-item draws one
// Philox block, which serves four elements, or two where an element takes 64
// bits (IS_WIDE).

#include "types.clh"
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

#define PARAMETERS TENSOR(storage_t, out), const ulong count, const ulong seed, const ulong offset
#define DRAW                                                                \
  const size_t first = get_global_id(0) * ELEMENTS;                         \
  if (first >= count) return;                                               \
  const uint4 block = philox(seed, offset, get_global_id(0));               \
  uint bits[4];                                                             \
  vstore4(block, 0, bits);                                                  \
  global storage_t *target = POINTER(out);                                  \
  const int elements = (int)min((ulong)ELEMENTS, count - first);

#if IS_WIDE
#define BITS(i) ((ulong)bits[2 * (i)] << 32 | bits[2 * (i) + 1])
#define UNIFORM(i) ((real_t)(BITS(i) >> (64 - DIGITS)) / (real_t)((ulong)1 << DIGITS))
#else
#define BITS(i) bits[i]
#define UNIFORM(i) ((real_t)(bits[i] >> (32 - DIGITS)) / (real_t)((ulong)1 << DIGITS))
#endif

// [from, to): a value that rounding lifts to `to` becomes `from`.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void random_uniform(PARAMETERS, const real_t from, const real_t to) {
  DRAW
  for (int i = 0; i < elements; ++i) {
    const real_t value = UNIFORM(i) * (to - from) + from;
    STORE(target, first + i, (compute_t)value);
    if ((real_t)LOAD(target, first + i) >= to) {
      STORE(target, first + i, (compute_t)from);
    }
  }
}

// Box and Muller, A note on the generation of random normal deviates, 1958.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void random_normal(PARAMETERS, const real_t mean, const real_t deviation) {
  DRAW
  for (int i = 0; i < elements; i += 2) {
    // In (0, 1], so that its logarithm is finite.
    const real_t radius = sqrt((real_t)-2 * log((real_t)1 - UNIFORM(i)));
    const real_t angle = 2 * UNIFORM(i + 1);
    STORE(target, first + i, (compute_t)(mean + deviation * radius * cospi(angle)));
    if (i + 1 < elements) {
      STORE(target, first + i + 1, (compute_t)(mean + deviation * radius * sinpi(angle)));
    }
  }
}

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void random_bernoulli(PARAMETERS, const real_t p, const real_t unused) {
  DRAW
  for (int i = 0; i < elements; ++i) {
    STORE(target, first + i, (compute_t)(UNIFORM(i) < p ? 1 : 0));
  }
}

// The middle of the uniform number's cell: never 0, nor 1, to which the middle of
// the last cell would round.
#define CELL (1 / (real_t)((ulong)1 << DIGITS))
#define OPEN_UNIFORM(i) fmin(UNIFORM(i) + CELL / 2, 1 - CELL)

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void random_exponential(PARAMETERS, const real_t rate, const real_t unused) {
  DRAW
  for (int i = 0; i < elements; ++i) {
    STORE(target, first + i, (compute_t)(-log1p(-OPEN_UNIFORM(i)) / rate));
  }
}

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void random_cauchy(PARAMETERS, const real_t median, const real_t sigma) {
  DRAW
  for (int i = 0; i < elements; ++i) {
    STORE(target, first + i, (compute_t)(median + sigma * tanpi(OPEN_UNIFORM(i) - (real_t)0.5f)));
  }
}

// Trials up to the first success.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void random_geometric(PARAMETERS, const real_t p, const real_t unused) {
  DRAW
  for (int i = 0; i < elements; ++i) {
    const real_t trials = ceil(log1p(-UNIFORM(i)) / log1p(-p));
    STORE(target, first + i, (compute_t)fmax(trials, (real_t)1));
  }
}

// base + [0, range); a range of zero stands for 2^64.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void random_integer(PARAMETERS, const ulong range, const long base) {
  DRAW
  for (int i = 0; i < elements; ++i) {
    const ulong number = range == 0 ? (ulong)BITS(i) : (ulong)BITS(i) % range;
    STORE(target, first + i, (compute_t)(base + (long)number));
  }
}
