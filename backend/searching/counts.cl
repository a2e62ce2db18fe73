// How often 0 ... bins - 1 occur among integers; others are not counted.
//
// cpu-class: a work-item counts its part of the values in a row of its own.
// gpu-class: all count in one row, atomically; the sums are integers, so their
// order does not show.

#include "types.clh"

#if IS_CPU
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void count_values(CONST_TENSOR(long, values), TENSOR(int, counts), const ulong size,
                  const ulong part, const long bins) {
  const size_t begin = get_global_id(0) * part;
  global int *row = POINTER(counts) + get_global_id(0) * bins;
  const global long *value = POINTER(values);
  for (size_t i = begin; i < min(begin + part, (size_t)size); ++i) {
    if (value[i] >= 0 && value[i] < bins) ++row[value[i]];
  }
}
#else
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void count_values(CONST_TENSOR(long, values), TENSOR(int, counts), const ulong size,
                  const ulong part, const long bins) {
  const size_t i = get_global_id(0);
  if (i >= size) return;
  const long value = POINTER(values)[i];
  if (value >= 0 && value < bins) atomic_inc(POINTER(counts) + value);
}
#endif
