// Attention with one query a head for CPUs (attention_decode.clh). Vectors run along the
// head dimension, and along 16 keys where their scores become weights.

#define LANES 16
#include "types.clh"
#include "lanes.clh"
#include "philox.clh"
#include "attention.clh"
#include "attention_decode.clh"
#include "exponential.clh"

DEFINE_EXP_BELOW(exp_below, float16, as_int16, as_float16)

#ifndef HEAD_DIM
#define HEAD_DIM 64  // columns that fit, a multiple of 16
#endif
#define VECTORS (HEAD_DIM / 16)

// Zeros beyond the last column.
inline void load_row(float16 *vectors, const global storage_t *row, long stride, int columns) {
#if IS_DENSE
  const int whole = columns / 16;
  for (int v = 0; v < whole; ++v) vectors[v] = CONCAT(load_lanes_, DTYPE)(row + v * 16);
#else
  const int whole = 0;
#endif
  for (int v = whole; v < VECTORS; ++v) {
    float lane[16];
    for (int l = 0; l < 16; ++l) {
      const int d = v * 16 + l;
      lane[l] = d < columns ? LOAD(row, d * stride) : 0.0f;
    }
    vectors[v] = vload16(0, lane);
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_decode_cpu(DECODE_PARAMETERS) {
  OWN_HEADS
  float16 queries[HEADS][VECTORS];
  float16 totals[HEADS][VECTORS];
  float largest[HEADS];
  float normaliser[HEADS];
  for (int h = 0; h < HEADS; ++h) {
    load_row(queries[h], POINTER(query) + HEAD_OFFSET(a->query, b, HEAD_OF(h)),
             a->query.column, a->query_dim);
    for (int v = 0; v < VECTORS; ++v) totals[h][v] = 0;
    largest[h] = -INFINITY;
    normaliser[h] = 0;
  }
  for (int j = begin; j < end; j += 16) {
    const int count = min(16, end - j);
    float scores[HEADS][16];
    for (int h = 0; h < HEADS; ++h) vstore16((float16)-INFINITY, 0, scores[h]);
    for (int i = 0; i < count; ++i) {
      float16 line[VECTORS];
      load_row(line, keys + (j + i) * a->key.row, a->key.column, a->query_dim);
#pragma unroll
      for (int h = 0; h < HEADS; ++h) {
        float16 sum = line[0] * queries[h][0];
#pragma unroll
        for (int v = 1; v < VECTORS; ++v) sum = fma(line[v], queries[h][v], sum);
        scores[h][i] =
            fma(LANES_SUM(sum), a->scale, mask_bias(a, POINTER(mask), b, HEAD_OF(h), j + i));
      }
    }
    float16 sums[HEADS][VECTORS];
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
      const float16 own = vload16(0, scores[h]);
      const float now = fmax(largest[h], LANES_MAX(own));
      // What is masked so far has no maximum.
      const float base = now == -INFINITY ? 0.0f : now;
      const float factor = exp(largest[h] - base);
      const float16 weights = exp_below(own - base);
      normaliser[h] = fma(normaliser[h], factor, LANES_SUM(weights));
      largest[h] = now;
      vstore16(weights, 0, scores[h]);
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) {
        totals[h][v] *= factor;
        sums[h][v] = 0;
      }
    }
    for (int i = 0; i < count; ++i) {
      float16 line[VECTORS];
      load_row(line, values + (j + i) * a->value.row, a->value.column, a->value_dim);
#pragma unroll
      for (int h = 0; h < HEADS; ++h) {
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
          sums[h][v] = fma((float16)(scores[h][i]), line[v], sums[h][v]);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) totals[h][v] += sums[h][v];
    }
  }
  for (int h = 0; h < heads; ++h) {
    const size_t row = b * a->heads + first + h;
    const float *total = (const float *)totals[h];
#if HAS_PARTS
    global float *target = POINTER(sums) + (row * parts + part) * a->value_dim;
    for (int d = 0; d < a->value_dim; ++d) target[d] = total[d];
    POINTER(statistics)[(row * parts + part) * 2] = largest[h];
    POINTER(statistics)[(row * parts + part) * 2 + 1] = normaliser[h];
#else
    const float factor = normaliser[h] == 0 ? 0.0f : 1 / normaliser[h];
    global storage_t *target = POINTER(out) + HEAD_OFFSET(a->out, b, first + h);
    for (int d = 0; d < a->value_dim; ++d) STORE(target, d * a->out.column, total[d] * factor);
    POINTER(logsumexp)[row] =
        normaliser[h] == 0 ? INFINITY : largest[h] + log(normaliser[h]);
#endif
  }
}
