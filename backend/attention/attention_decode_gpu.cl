// Attention with one query a head for GPUs (attention_decode.clh). A work-group of 128
// walks over its keys in tiles of 64. Eight work-items share a key and read it in the order
// of memory; for the values a work-item has COLUMNS columns, and where the head dimension
// is at most 64 two of them share a column.

#include "types.clh"
#include "philox.clh"
#include "attention.clh"
#include "attention_decode.clh"

#ifndef HEAD_DIM
#define HEAD_DIM 64  // columns that fit: 64, 128 or 256
#endif
#define GROUP 128
#define SHARE 8
#define TILE 64
#define COLUMNS (HEAD_DIM > GROUP ? HEAD_DIM / GROUP : 1)
#define WAYS (HEAD_DIM < GROUP ? GROUP / HEAD_DIM : 1)

#if IS_DENSE
inline float4 load4_float32(const global float *p) { return vload4(0, p); }
inline float4 load4_bfloat16(const global ushort *p) {
  return as_float4(convert_uint4(vload4(0, p)) << 16);
}
inline float4 load4_float16(const global ushort *p) {
  return (float4)(load_float16(p, 0), load_float16(p, 1), load_float16(p, 2),
                  load_float16(p, 3));
}
#define LOAD_FOUR(row, d, stride) CONCAT(load4_, DTYPE)((row) + (d))
#else
#define LOAD_FOUR(row, d, stride)                                                     \
  (float4)(LOAD(row, (d) * (stride)), LOAD(row, ((d) + 1) * (stride)),                \
           LOAD(row, ((d) + 2) * (stride)), LOAD(row, ((d) + 3) * (stride)))
#endif

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void attention_decode_gpu(DECODE_PARAMETERS) {
  OWN_HEADS
  local float queries[HEADS][HEAD_DIM];
  local float dots[HEADS][TILE][SHARE + 1];
  local float weights[HEADS][TILE];
  local float maxima[HEADS][TILE / 4];
  const int item = get_local_id(0);
  for (int e = item; e < HEADS * HEAD_DIM; e += GROUP) {
    const int d = e % HEAD_DIM;
    queries[e / HEAD_DIM][d] =
        d < a->query_dim ? LOAD(POINTER(query) + HEAD_OFFSET(a->query, b, HEAD_OF(e / HEAD_DIM)),
                                d * a->query.column)
                         : 0.0f;
  }
  float totals[HEADS][COLUMNS];
  float normaliser[HEADS];
  float largest[HEADS];
  for (int h = 0; h < HEADS; ++h) {
    largest[h] = -INFINITY;
    normaliser[h] = 0;
    for (int c = 0; c < COLUMNS; ++c) totals[h][c] = 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const int lane = item % SHARE;
  const int whole = a->query_dim / 4 * 4;
  for (int j = begin; j < end; j += TILE) {
    for (int k = item / SHARE; k < TILE; k += GROUP / SHARE) {
      float sums[HEADS];
      for (int h = 0; h < HEADS; ++h) sums[h] = 0;
      const global storage_t *row = keys + min(j + k, end - 1) * a->key.row;
      for (int d = lane * 4; d < whole; d += SHARE * 4) {
        const float4 line = LOAD_FOUR(row, d, a->key.column);
        for (int h = 0; h < HEADS; ++h) {
          const float4 factors = vload4(0, queries[h] + d);
          sums[h] = fma(line.x, factors.x, sums[h]);
          sums[h] = fma(line.y, factors.y, sums[h]);
          sums[h] = fma(line.z, factors.z, sums[h]);
          sums[h] = fma(line.w, factors.w, sums[h]);
        }
      }
      const int d = whole + lane;
      if (d < a->query_dim) {
        const float element = LOAD(row, d * a->key.column);
        for (int h = 0; h < HEADS; ++h) sums[h] = fma(element, queries[h][d], sums[h]);
      }
      for (int h = 0; h < HEADS; ++h) dots[h][k][lane] = sums[h];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = item; e < HEADS * TILE; e += GROUP) {
      const int h = e / TILE;
      const int k = e % TILE;
      float sum = 0;
      for (int l = 0; l < SHARE; ++l) sum += dots[h][k][l];
      weights[h][k] =
          j + k < end
              ? fma(sum, a->scale, mask_bias(a, POINTER(mask), b, HEAD_OF(h), j + k))
              : -INFINITY;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = item; e < HEADS * (TILE / 4); e += GROUP) {
      const int h = e / (TILE / 4);
      const local float *four = weights[h] + e % (TILE / 4) * 4;
      maxima[h][e % (TILE / 4)] = fmax(fmax(four[0], four[1]), fmax(four[2], four[3]));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int h = 0; h < HEADS; ++h) {
      float now = largest[h];
      for (int m = 0; m < TILE / 4; ++m) now = fmax(now, maxima[h][m]);
      // What is masked so far has no maximum.
      const float base = now == -INFINITY ? 0.0f : now;
      const float factor = exp(largest[h] - base);
      largest[h] = now;
      normaliser[h] *= factor;
      for (int c = 0; c < COLUMNS; ++c) totals[h][c] *= factor;
      for (int k = item; k < TILE; k += GROUP) weights[h][k] = exp(weights[h][k] - base);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float sums[HEADS][COLUMNS];
    for (int h = 0; h < HEADS; ++h) {
      for (int c = 0; c < COLUMNS; ++c) sums[h][c] = 0;
    }
    const int count = min(TILE, end - j);
    for (int k = item / HEAD_DIM; k < count; k += WAYS) {
      const global storage_t *row = values + (j + k) * a->value.row;
      float line[COLUMNS];
      for (int c = 0; c < COLUMNS; ++c) {
        const int d = item % HEAD_DIM + c * GROUP;
        line[c] = LOAD(row, min(d, a->value_dim - 1) * a->value.column);
      }
      for (int h = 0; h < HEADS; ++h) {
        const float weight = weights[h][k];
        normaliser[h] += weight;
        for (int c = 0; c < COLUMNS; ++c) sums[h][c] = fma(weight, line[c], sums[h][c]);
      }
    }
    for (int h = 0; h < HEADS; ++h) {
      for (int c = 0; c < COLUMNS; ++c) totals[h][c] += sums[h][c];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  // Those that share a column: of the first column, the normaliser comes with it.
  local float shared[WAYS][HEADS][HEAD_DIM + 1];
  if (WAYS > 1) {
    for (int h = 0; h < HEADS; ++h) {
      shared[item / HEAD_DIM][h][item % HEAD_DIM] = totals[h][0];
      if (item % HEAD_DIM == 0) shared[item / HEAD_DIM][h][HEAD_DIM] = normaliser[h];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int h = 0; h < HEADS; ++h) {
      totals[h][0] = shared[0][h][item % HEAD_DIM];
      normaliser[h] = shared[0][h][HEAD_DIM];
      for (int w = 1; w < WAYS; ++w) {
        totals[h][0] += shared[w][h][item % HEAD_DIM];
        normaliser[h] += shared[w][h][HEAD_DIM];
      }
    }
  }
  if (item / HEAD_DIM > 0) return;
  for (int h = 0; h < heads; ++h) {
    const size_t row = b * a->heads + first + h;
#if HAS_PARTS
    const size_t at = row * parts + part;
    if (item == 0) {
      POINTER(statistics)[at * 2] = largest[h];
      POINTER(statistics)[at * 2 + 1] = normaliser[h];
    }
#else
    const float factor = normaliser[h] == 0 ? 0.0f : 1 / normaliser[h];
    if (item == 0) {
      POINTER(logsumexp)[row] =
          normaliser[h] == 0 ? INFINITY : largest[h] + log(normaliser[h]);
    }
#endif
    for (int c = 0; c < COLUMNS; ++c) {
      const int d = item % HEAD_DIM + c * GROUP;
      if (d < a->value_dim) {
#if HAS_PARTS
        POINTER(sums)[at * a->value_dim + d] = totals[h][c];
#else
        STORE(POINTER(out) + HEAD_OFFSET(a->out, b, first + h), d * a->out.column,
              totals[h][c] * factor);
#endif
      }
    }
  }
}
