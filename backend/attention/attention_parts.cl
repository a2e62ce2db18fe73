// Adds what the parts of the keys left for the one query of a head (attention_decode.clh), in
// their order. A work-item has a column of a head.

#include "types.clh"
#include "philox.clh"
#include "attention.clh"

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void attention_parts(const attention_t shape, CONST_TENSOR(float, sums),
                     CONST_TENSOR(float, statistics), const int parts, TENSOR(storage_t, out),
                     TENSOR(float, logsumexp)) {
  const attention_t *a = &shape;
  const int column = get_global_id(0);
  const int h = get_global_id(1);
  const size_t b = get_global_id(2);
  const size_t row = b * a->heads + h;
  if (column >= a->value_dim) return;
  const global float *statistic = POINTER(statistics) + row * parts * 2;
  float largest = -INFINITY;
  for (int p = 0; p < parts; ++p) largest = fmax(largest, statistic[2 * p]);
  float total = 0;
  float sum = 0;
  for (int p = 0; p < parts; ++p) {
    const float weight =
        statistic[2 * p] == -INFINITY ? 0.0f : exp(statistic[2 * p] - largest);
    total = fma(weight, statistic[2 * p + 1], total);
    sum = fma(weight, POINTER(sums)[(row * parts + p) * a->value_dim + column], sum);
  }
  STORE(POINTER(out), HEAD_OFFSET(a->out, b, h) + column * a->out.column,
        total == 0 ? 0.0f : sum / total);
  if (column == 0) POINTER(logsumexp)[row] = total == 0 ? INFINITY : largest + log(total);
}
