// Sums, products and extremes along one dimension. One work-item walks one line, in
// order, so the same input gives the same bits.

#include "types.clh"

#ifndef IS_MAXIMUM
#define IS_MAXIMUM 0
#endif

#define PARAMETERS                                                          \
  TENSOR(storage_t, out), CONST_TENSOR(storage_t, self), const ulong lines, \
      const long length, const long inner

// Contiguous tensors: elements of a line lie `inner` apart.
#define LINE                                                         \
  const size_t line = get_global_id(0);                              \
  if (line >= lines) return;                                         \
  const size_t start = line / inner * length * inner + line % inner;

#ifdef IS_FLOATING
// With what rounding has lost so far (Neumaier, Rundungsfehleranalyse einiger
// Verfahren zur Summation endlicher Summen, 1974): long lines stay as exact as
// sums in a wider type.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void cumulative_sum(PARAMETERS) {
  LINE
  compute_t total = 0;
  compute_t lost = 0;
  for (long i = 0; i < length; ++i) {
    const compute_t x = LOAD(POINTER(self), start + i * inner);
    const compute_t next = total + x;
    if (isfinite(next)) {
      lost += fabs(total) >= fabs(x) ? (total - next) + x : (x - next) + total;
    }
    total = next;
    STORE(POINTER(out), start + i * inner, total + lost);
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
  compute_t total = 1;
  for (long i = 0; i < length; ++i) {
    total *= LOAD(POINTER(self), start + i * inner);
    STORE(POINTER(out), start + i * inner, total);
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
