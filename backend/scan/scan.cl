// Sums, products and extremes along one dimension. One work-item walks one line, in
// order, so the same input gives the same bits; of sums by vectors (LANES 16, no
// float64) several lines.

#include "types.clh"
#ifdef LANES
#include "lanes.clh"
#include "prefetch.clh"
#endif

#ifndef IS_MAXIMUM
#define IS_MAXIMUM 0
#endif

#define PARAMETERS                                                          \
  TENSOR(storage_t, out), CONST_TENSOR(storage_t, self), const ulong lines, \
      const long length, const long inner

// Contiguous tensors: elements of a line lie `inner` apart.
#define LINE                            \
  const size_t line = get_global_id(0); \
  if (line >= lines) return;            \
  const size_t start = line / inner * length * inner + line % inner;

// As on torch's CPU: what leaves the range of floats may come back.
#if defined(IS_FLOATING) && defined(HAS_FLOAT64)
typedef double running_t;
#else
typedef compute_t running_t;
#endif

#ifdef IS_FLOATING
// With what rounding has lost so far (Neumaier, Rundungsfehleranalyse einiger
// Verfahren zur Summation endlicher Summen, 1974): long lines stay as exact as
// sums in a wider type.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void cumulative_sum(PARAMETERS) {
  LINE
  running_t total = 0;
  running_t lost = 0;
  for (long i = 0; i < length; ++i) {
    const running_t x = LOAD(POINTER(self), start + i * inner);
    const running_t next = total + x;
    if (isfinite(next)) {
      lost += fabs(total) >= fabs(x) ? (total - next) + x : (x - next) + total;
    }
    total = next;
    STORE(POINTER(out), start + i * inner, (compute_t)(total + lost));
  }
}

// Terms are relative to the largest element so far; what rounding has lost is
// kept as above.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void cumulative_log_sum_exp(PARAMETERS) {
  LINE
  compute_t largest = -INFINITY;
  compute_t total = 0;
  compute_t lost = 0;
  for (long i = 0; i < length; ++i) {
    const compute_t x = LOAD(POINTER(self), start + i * inner);
    if (x > largest) {
      const compute_t scale = exp(largest - x);
      total *= scale;
      lost *= scale;
      largest = x;
    }
    // Of equal infinities the difference is not a number.
    const compute_t term = x == largest ? 1 : exp(x - largest);
    const compute_t next = total + term;
    lost += total >= term ? (total - next) + term : (term - next) + total;
    total = next;
    STORE(POINTER(out), start + i * inner, log(total + lost) + largest);
  }
}
#else
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void cumulative_sum(PARAMETERS) {
  LINE
  compute_t total = 0;
  for (long i = 0; i < length; ++i) {
    total += LOAD(POINTER(self), start + i * inner);
    STORE(POINTER(out), start + i * inner, total);
  }
}
#endif

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void cumulative_product(PARAMETERS) {
  LINE
  running_t total = 1;
  for (long i = 0; i < length; ++i) {
    total *= LOAD(POINTER(self), start + i * inner);
    STORE(POINTER(out), start + i * inner, (compute_t)total);
  }
}

// Of equal extremes the last; a NaN is beyond everything.
#if IS_MAXIMUM
#define IS_BEYOND(x, extreme) ((x) >= (extreme))
#else
#define IS_BEYOND(x, extreme) ((x) <= (extreme))
#endif

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void cumulative_extreme(PARAMETERS, TENSOR(long, indices)) {
  LINE
  compute_t extreme = LOAD(POINTER(self), start);
  long at = 0;
  for (long i = 0; i < length; ++i) {
    const compute_t x = LOAD(POINTER(self), start + i * inner);
    if (x != x || (extreme == extreme && IS_BEYOND(x, extreme))) {
      extreme = x;
      at = i;
    }
    STORE(POINTER(out), start + i * inner, extreme);
    POINTER(indices)[start + i * inner] = at;
  }
}

#if defined(LANES) && defined(HAS_FLOAT64)
#define LOAD_HALF_float32(p) vload8(0, p)
inline float8 LOAD_HALF_float16(const global ushort *p) {
  const ushort8 bits = vload8(0, p);  // may lie anywhere, see lanes.clh
  return vload_half8(0, (const half *)&bits);
}
#define LOAD_HALF_bfloat16(p) as_float8(convert_uint8(vload8(0, p)) << 16)
// Halves of a vector of elements, read apart: of one whole read PoCL makes a chain
// through a register that it inserts the second half into.
#define LOAD_HALF(p) convert_double8(CONCAT(LOAD_HALF_, DTYPE)(p))
// A macro, as store_full_lanes_nt is.
#define STORE_HALVES(p, low, high)                                               \
  {                                                                              \
    const lanes_t halves = (lanes_t)(convert_float8(low), convert_float8(high)); \
    store_full_lanes_nt(p, halves);                                              \
  }

// Sums of x's lanes up to each, twice as many a step.
inline double8 sums_of_lanes(double8 x) {
  const double8 zero = 0;
  x += shuffle2(x, zero, (ulong8)(8, 0, 8, 2, 8, 4, 8, 6));
  x += shuffle2(x, zero, (ulong8)(8, 8, 1, 1, 8, 8, 5, 5));
  return x + shuffle2(x, zero, (ulong8)(8, 8, 8, 8, 3, 3, 3, 3));
}

// Lines of neighbouring elements, `per_item` a work-item.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void cumulative_sum_rows(PARAMETERS, const ulong per_item) {
  const ulong first = get_global_id(0) * per_item;
  for (ulong line = first; line < min(lines, first + per_item); ++line) {
    const global storage_t *in = POINTER(self) + line * length;
    global storage_t *to = POINTER(out) + line * length;
    double8 before = 0;
    long i = 0;
    for (; i + LANES <= length; i += LANES) {
      const double8 low = sums_of_lanes(LOAD_HALF(in + i));
      // Ahead of the addition of what came before, the only one that waits.
      const double8 high =
          sums_of_lanes(LOAD_HALF(in + i + LANES / 2)) + low.s77777777;
      STORE_HALVES(to + i, before + low, before + high)
      before += high.s77777777;
    }
    double total = before.s0;
    for (; i < length; ++i) {
      total += LOAD(in, i);
      STORE(to, i, (compute_t)total);
    }
  }
}

#define ROWS 4

// Row r + j of a run of columns, at vector v of it. What a cache's own prefetching
// does not follow from row to row is prefetched ROWS ahead.
#define ADD_ROW(j)                                           \
  {                                                          \
    const size_t at = start + (r + (j)) * inner + v * LANES; \
    low += LOAD_HALF(POINTER(self) + at);                    \
    high += LOAD_HALF(POINTER(self) + at + LANES / 2);       \
    PREFETCH(POINTER(self) + at + ROWS * inner);             \
    STORE_HALVES(POINTER(out) + at, low, high)               \
  }

// Lines side by side: runs of up to `run` of them, `per_item` a work-item.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void cumulative_sum_columns(PARAMETERS, const ulong run, const ulong per_item) {
  const ulong per_row = (inner + run - 1) / run;
  const ulong runs = lines / inner * per_row;
  const ulong first = get_global_id(0) * per_item;
  for (ulong n = first; n < min(runs, first + per_item); ++n) {
    const ulong row = n / per_row;
    const ulong column = (n - row * per_row) * run;
    const size_t start = row * length * inner + column;
    const int width = (int)min(run, inner - column);
    const int whole = width / LANES;
    double8 totals[2 * RUN / LANES];
    double *each = (double *)totals;
    for (int v = 0; v < 2 * ((width + LANES - 1) / LANES); ++v) totals[v] = 0;
    for (long r = 0; r < length; r += ROWS) {
      const int rows = (int)min((long)ROWS, length - r);
      // Several rows at once, so that totals are moved less often.
      for (int v = 0; v < whole; ++v) {
        double8 low = totals[2 * v], high = totals[2 * v + 1];
        if (rows == ROWS) {
          ADD_ROW(0) ADD_ROW(1) ADD_ROW(2) ADD_ROW(3)
        } else {
          for (int j = 0; j < rows; ++j) ADD_ROW(j)
        }
        totals[2 * v] = low;
        totals[2 * v + 1] = high;
      }
      for (int j = 0; j < rows; ++j) {
        for (int l = whole * LANES; l < width; ++l) {
          const size_t at = start + (r + j) * inner + l;
          each[l] += LOAD(POINTER(self), at);
          STORE(POINTER(out), at, (compute_t)each[l]);
        }
      }
    }
  }
}
#endif
