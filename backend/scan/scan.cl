// Sums and products along one dimension. One work-item walks one line, in
// order, so the same input gives the same bits.

#include "types.clh"

#define PARAMETERS                                                          \
  TENSOR(storage_t, out), CONST_TENSOR(storage_t, self), const ulong lines, \
      const long length, const long inner

// Contiguous tensors: elements of a line lie `inner` apart.
#define WALK(identity, step)                                                \
  const size_t line = get_global_id(0);                                     \
  if (line >= lines) return;                                                \
  const size_t start = line / inner * length * inner + line % inner;        \
  compute_t total = identity;                                               \
  for (long i = 0; i < length; ++i) {                                       \
    total = total step LOAD(POINTER(self), start + i * inner);              \
    STORE(POINTER(out), start + i * inner, total);                          \
  }

kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void cumulative_sum(PARAMETERS) { WALK(0, +) }

kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void cumulative_product(PARAMETERS) { WALK(1, *) }
