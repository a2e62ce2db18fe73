// Resampling along one dimension: an element of a line is a weighted sum of neighbouring
// elements of the source's line, which lie `inner` apart. A work-item makes one.

#include "types.clh"

typedef CONCAT(storage_, OUT_DTYPE) out_t;  // float or double, as sums

// `runs` has where an element's neighbours begin and how many they are, a row of `weights`
// theirs.
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void resample_lines(
    const int length,
    const int source_length,
    const int inner,
    const int most,
    TENSOR(out_t, out),
    CONST_TENSOR(storage_t, source),
    CONST_TENSOR(out_t, weights),
    CONST_TENSOR(int, runs)) {
  const long i = get_global_id(0);
  if (i >= (long)length * inner) return;
  const int place = (int)i / inner;
  const long lines = get_global_id(1);
  const int begin = POINTER(runs)[2 * place];
  const int count = POINTER(runs)[2 * place + 1];
  global const out_t *weight = POINTER(weights) + (long)place * most;
  const long first = (lines * source_length + begin) * inner + (int)i % inner;
  out_t sum = 0;
  for (int j = 0; j < count; ++j) {
    sum += weight[j] * (out_t)LOAD(POINTER(source), first + (long)j * inner);
  }
  POINTER(out)[lines * length * inner + i] = sum;
}
