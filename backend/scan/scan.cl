// Sums and products along one dimension. One work-item walks one line, in
// order, so the same input gives the same bits.

#include "types.clh"

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
kernel __attribute__((reqd_work_group_size(16, 1, 1)))
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
#else
kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void cumulative_sum(PARAMETERS) {
  LINE
  compute_t total = 0;
  for (long i = 0; i < length; ++i) {
    total += LOAD(POINTER(self), start + i * inner);
    STORE(POINTER(out), start + i * inner, total);
  }
}
#endif

kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void cumulative_product(PARAMETERS) {
  LINE
  compute_t total = 1;
  for (long i = 0; i < length; ++i) {
    total *= LOAD(POINTER(self), start + i * inner);
    STORE(POINTER(out), start + i * inner, total);
  }
}
