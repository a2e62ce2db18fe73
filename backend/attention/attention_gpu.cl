// Scaled dot product attention for GPUs, forward and backward, without the
// matrix of scores: Dao, FlashAttention-2 (2023).
//
// A work-group of 16 x 16 owns ROWS rows (queries; keys for the gradients of
// keys and values) and walks over the other side in tiles of COLUMNS rows. A
// work-item holds ITEM_ROWS x 4 scores of a tile in registers; weights made of
// them go through local memory, [row][column] with a pitch of PITCH. Two
// products do all the work, both from operands staged in local memory:
//   multiply    scores[row][column] = sum over the head dimension
//   accumulate  sums[row][d] = sum over the tile's columns of weight * element

#include "types.clh"
#include "philox.clh"
#include "attention.clh"

#ifndef HEAD_DIM
#define HEAD_DIM 64  // columns that fit, a multiple of 64
#endif
#ifndef ITEM_ROWS
#define ITEM_ROWS 4  // 2 or 4
#endif
#define GROUP 256
#define ROWS (16 * ITEM_ROWS)
#define COLUMNS 64
#define PITCH (COLUMNS + 4)
#define DEPTH 16                  // of the head dimension that multiply stages
#define STAGED (2048 / HEAD_DIM)  // rows that accumulate stages
#define STAGE_SIZE (2 * DEPTH * PITCH)
#define ITEM_DIMS (HEAD_DIM / 16)
// Work-items that share a row of the softmax, and columns of each.
#define PARTS (GROUP / ROWS)
#define SPAN (COLUMNS / PARTS)

// The column of a head that element n of a work-item's sums belongs to.
#define DIM_OF(n) ((n) / 4 * 64 + get_local_id(0) * 4 + (n) % 4)

// Rows from `first` up to `limit`.
typedef struct {
  const global storage_t *rows;
  strides_t strides;
  int first;
  int limit;
  int columns;
} tile_t;

inline tile_t tile(const global storage_t *head, strides_t strides, int first, int limit,
                   int columns) {
  const tile_t result = {head, strides, first, limit, columns};
  return result;
}

inline float load_element(const tile_t *t, int row, int column) {
  return row < t->limit && column < t->columns
             ? LOAD(t->rows, row * t->strides.row + column * t->strides.column)
             : 0.0f;
}

// Columns d to d + DEPTH of `count` rows, transposed.
inline void stage_transposed(local float *stage, const tile_t *t, int count, int d) {
  const int x = get_local_id(0);
  for (int r = get_local_id(1); r < count; r += 16) {
    stage[x * PITCH + r] = load_element(t, t->first + r, d + x);
  }
}

inline void multiply(float (*scores)[4], local float *stage, const tile_t rows,
                     const tile_t columns) {
  const local float *row_stage = stage + get_local_id(1) * ITEM_ROWS;
  const local float4 *column_stage =
      (const local float4 *)(stage + DEPTH * PITCH) + get_local_id(0);
  for (int i = 0; i < ITEM_ROWS; ++i) {
    for (int j = 0; j < 4; ++j) scores[i][j] = 0;
  }
  for (int d = 0; d < rows.columns; d += DEPTH) {
    barrier(CLK_LOCAL_MEM_FENCE);
    stage_transposed(stage, &rows, ROWS, d);
    stage_transposed(stage + DEPTH * PITCH, &columns, COLUMNS, d);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) {
      const float4 line = column_stage[k * (PITCH / 4)];
#pragma unroll
      for (int i = 0; i < ITEM_ROWS; ++i) {
        const float factor = row_stage[k * PITCH + i];
        scores[i][0] = fma(factor, line.x, scores[i][0]);
        scores[i][1] = fma(factor, line.y, scores[i][1]);
        scores[i][2] = fma(factor, line.z, scores[i][2]);
        scores[i][3] = fma(factor, line.w, scores[i][3]);
      }
    }
  }
}

// Sums of one tile; callers add them up, which keeps the error of long sums
// small.
inline void accumulate(float (*sums)[ITEM_DIMS], const local float4 *weights,
                       local float *stage, const tile_t t) {
  const int lane = get_local_id(1) * 16 + get_local_id(0);
  const local float4 *line_stage = (const local float4 *)stage + get_local_id(0);
  const local float4 *row_weights = weights + get_local_id(1) * ITEM_ROWS * (PITCH / 4);
  for (int i = 0; i < ITEM_ROWS; ++i) {
    for (int n = 0; n < ITEM_DIMS; ++n) sums[i][n] = 0;
  }
  const int count = min(COLUMNS, t.limit - t.first);
  for (int r = 0; r < count; r += STAGED) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = lane; e < STAGED * HEAD_DIM; e += GROUP) {
      stage[e] = load_element(&t, t.first + r + e / HEAD_DIM, e % HEAD_DIM);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < STAGED; k += 4) {
      float weight[ITEM_ROWS][4];
#pragma unroll
      for (int i = 0; i < ITEM_ROWS; ++i) {
        vstore4(row_weights[i * (PITCH / 4) + (r + k) / 4], 0, weight[i]);
      }
#pragma unroll
      for (int l = 0; l < 4; ++l) {
#pragma unroll
        for (int n = 0; n < ITEM_DIMS; n += 4) {
          const float4 line = line_stage[(k + l) * (HEAD_DIM / 4) + n * 4];
#pragma unroll
          for (int i = 0; i < ITEM_ROWS; ++i) {
            sums[i][n] = fma(weight[i][l], line.x, sums[i][n]);
            sums[i][n + 1] = fma(weight[i][l], line.y, sums[i][n + 1]);
            sums[i][n + 2] = fma(weight[i][l], line.z, sums[i][n + 2]);
            sums[i][n + 3] = fma(weight[i][l], line.w, sums[i][n + 3]);
          }
        }
      }
    }
  }
}

// scores = scores * scale + mask, -inf above the diagonal and beyond the last
// column. `mask` is at the head's first element.
inline void mask_scores(float (*scores)[4], const attention_t *a, const global mask_t *mask,
                        long row_stride, long column_stride, int rows_are_keys,
                        int first_row, int row_limit, int first_column, int column_limit) {
  for (int i = 0; i < ITEM_ROWS; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int row = first_row + get_local_id(1) * ITEM_ROWS + i;
      const int column = first_column + get_local_id(0) * 4 + j;
      float score = scores[i][j] * a->scale;
#if HAS_MASK
      if (row < row_limit && column < column_limit) {
        score += load_bias(mask, row * row_stride + column * column_stride);
      }
#endif
#if IS_CAUSAL
      if (rows_are_keys ? row > column : column > row) score = -INFINITY;
#endif
      scores[i][j] = column < column_limit ? score : -INFINITY;
    }
  }
}

inline void put_weights(local float4 *weights, float (*values)[4]) {
  for (int i = 0; i < ITEM_ROWS; ++i) {
    weights[(get_local_id(1) * ITEM_ROWS + i) * (PITCH / 4) + get_local_id(0)] =
        vload4(0, values[i]);
  }
}

inline void store_rows(global storage_t *rows, strides_t strides, int first, int limit,
                       int columns, float (*sums)[ITEM_DIMS]) {
  for (int i = 0; i < ITEM_ROWS; ++i) {
    const int row = first + get_local_id(1) * ITEM_ROWS + i;
    for (int n = 0; n < ITEM_DIMS; ++n) {
      const int column = DIM_OF(n);
      if (row < limit && column < columns) {
        STORE(rows, row * strides.row + column * strides.column, sums[i][n]);
      }
    }
  }
}

// What an element is multiplied by.
inline float keep_scale(const attention_t *a, uint bits) {
  return bits >= a->threshold ? a->keep_scale : 0.0f;
}

#define CLEAR(sums)                                                       \
  for (int i = 0; i < ITEM_ROWS; ++i) {                                   \
    for (int n = 0; n < ITEM_DIMS; ++n) sums[i][n] = 0;                   \
  }
// Each row of totals becomes totals * factor + sums * scale.
#define ADD_UP(totals, factor, sums, scale)                               \
  for (int i = 0; i < ITEM_ROWS; ++i) {                                   \
    for (int n = 0; n < ITEM_DIMS; ++n) {                                 \
      totals[i][n] = fma(totals[i][n], factor, sums[i][n] * (scale));     \
    }                                                                     \
  }

#define LOCAL_TILES                                                       \
  local float4 stage4[STAGE_SIZE / 4];                                    \
  local float4 weights[ROWS * (PITCH / 4)];                               \
  local float *stage = (local float *)stage4;

kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void attention_forward_gpu(ATTENTION_PARAMETERS, TENSOR(storage_t, out),
                           TENSOR(float, logsumexp)) {
  LOCAL_TILES
  local float partial[GROUP];
  local float factors[ROWS];
  OWN_QUERIES(ROWS)
  const tile_t queries = tile(POINTER(query) + HEAD_OFFSET(a->query, b, h), a->query, first,
                              a->queries, a->query_dim);
  // In the softmax a work-item has SPAN columns of one row.
  const int lane = get_local_id(1) * 16 + get_local_id(0);
  const int row = lane / PARTS;
  local float *span = (local float *)weights + row * PITCH + lane % PARTS * SPAN;

  float scores[ITEM_ROWS][4];
  float sums[ITEM_ROWS][ITEM_DIMS];
  float totals[ITEM_ROWS][ITEM_DIMS];
  CLEAR(totals)
  float largest = -INFINITY;
  float normaliser = 0;
  for (int j = 0; j < end; j += COLUMNS) {
    multiply(scores, stage, queries, tile(keys, a->key, j, end, a->query_dim));
    mask_scores(scores, a, POINTER(mask) + HEAD_OFFSET(a->mask, b, h), a->mask.row,
                a->mask.column, 0, first, a->queries, j, end);
    put_weights(weights, scores);
    barrier(CLK_LOCAL_MEM_FENCE);
    float now = largest;
    for (int c = 0; c < SPAN; ++c) now = fmax(now, span[c]);
    partial[lane] = now;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int p = 0; p < PARTS; ++p) now = fmax(now, partial[row * PARTS + p]);
    // A row that is masked so far has no maximum.
    const float base = now == -INFINITY ? 0.0f : now;
    const float factor = exp(largest - base);
    largest = now;
    float sum = 0;
    for (int c = 0; c < SPAN; c += 4) {
#if HAS_DROPOUT
      uint bits[4];
      vstore4(dropout_bits(a, first_row + first + row, (j + lane % PARTS * SPAN + c) / 4), 0,
              bits);
#endif
      for (int l = 0; l < 4; ++l) {
        const float weight = exp(span[c + l] - base);
        sum += weight;
#if HAS_DROPOUT
        span[c + l] = weight * keep_scale(a, bits[l]);
#else
        span[c + l] = weight;
#endif
      }
    }
    normaliser = fma(normaliser, factor, sum);
    if (lane % PARTS == 0) factors[row] = factor;
    accumulate(sums, weights, stage, tile(values, a->value, j, end, a->value_dim));
    ADD_UP(totals, factors[get_local_id(1) * ITEM_ROWS + i], sums, 1)
  }

  partial[lane] = normaliser;
  barrier(CLK_LOCAL_MEM_FENCE);
  float total = 0;
  for (int p = 0; p < PARTS; ++p) total += partial[row * PARTS + p];
  if (lane % PARTS == 0) {
    factors[row] = total == 0 ? 0.0f : 1 / total;
    if (first + row < a->queries) {
      // exp(score - inf) is 0: what backward needs.
      POINTER(logsumexp)[first_row + first + row] =
          total == 0 ? INFINITY : largest + log(total);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  CLEAR(sums)
  ADD_UP(totals, factors[get_local_id(1) * ITEM_ROWS + i], sums, 1)
  store_rows(POINTER(out) + HEAD_OFFSET(a->out, b, h), a->out, first, a->queries,
             a->value_dim, totals);
}

kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void attention_grad_query_gpu(BACKWARD_PARAMETERS, TENSOR(storage_t, grad_query)) {
  LOCAL_TILES
  OWN_QUERIES(ROWS)
  const tile_t queries = tile(POINTER(query) + HEAD_OFFSET(a->query, b, h), a->query, first,
                              a->queries, a->query_dim);
  const tile_t grads = tile(POINTER(grad_out) + HEAD_OFFSET(a->out, b, h), a->out, first,
                            a->queries, a->value_dim);
  const int item_row = first + get_local_id(1) * ITEM_ROWS;

  float scores[ITEM_ROWS][4];
  float products[ITEM_ROWS][4];
  float sums[ITEM_ROWS][ITEM_DIMS];
  float totals[ITEM_ROWS][ITEM_DIMS];
  float normaliser[ITEM_ROWS];
  float deltas[ITEM_ROWS];
  CLEAR(totals)
  for (int i = 0; i < ITEM_ROWS; ++i) {
    const size_t row = first_row + min(item_row + i, a->queries - 1);
    normaliser[i] = POINTER(logsumexp)[row];
    deltas[i] = POINTER(delta)[row];
  }
  for (int j = 0; j < end; j += COLUMNS) {
    multiply(products, stage, grads, tile(values, a->value, j, end, a->value_dim));
    const tile_t key_tile = tile(keys, a->key, j, end, a->query_dim);
    multiply(scores, stage, queries, key_tile);
    mask_scores(scores, a, POINTER(mask) + HEAD_OFFSET(a->mask, b, h), a->mask.row,
                a->mask.column, 0, first, a->queries, j, end);
    for (int i = 0; i < ITEM_ROWS; ++i) {
#if HAS_DROPOUT
      uint bits[4];
      vstore4(dropout_bits(a, first_row + item_row + i, j / 4 + get_local_id(0)), 0, bits);
      for (int l = 0; l < 4; ++l) products[i][l] *= keep_scale(a, bits[l]);
#endif
      for (int l = 0; l < 4; ++l) {
        scores[i][l] = exp(scores[i][l] - normaliser[i]) * (products[i][l] - deltas[i]);
      }
    }
    put_weights(weights, scores);
    accumulate(sums, weights, stage, key_tile);
    ADD_UP(totals, 1, sums, a->scale)
  }
  store_rows(POINTER(grad_query) + HEAD_OFFSET(a->grad_query, b, h), a->grad_query, first,
             a->queries, a->query_dim, totals);
}

kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void attention_grad_key_value_gpu(BACKWARD_PARAMETERS, TENSOR(storage_t, grad_key),
                                  TENSOR(storage_t, grad_value)) {
  LOCAL_TILES
  OWN_KEYS(ROWS)
  const tile_t keys = tile(POINTER(key) + HEAD_OFFSET(a->key, b, key_head), a->key, first,
                           a->keys, a->query_dim);
  const tile_t values = tile(POINTER(value) + HEAD_OFFSET(a->value, b, key_head), a->value,
                             first, a->keys, a->value_dim);

  float scores[ITEM_ROWS][4];
  float products[ITEM_ROWS][4];
  float sums[ITEM_ROWS][ITEM_DIMS];
  float key_totals[ITEM_ROWS][ITEM_DIMS];
  float value_totals[ITEM_ROWS][ITEM_DIMS];
  CLEAR(key_totals)
  CLEAR(value_totals)
  for (int h = key_head * group; h < (key_head + 1) * group; ++h) {
    const size_t first_row = (b * a->heads + h) * a->queries;
    // Queries before the tile's first key see none of its keys.
    for (int i0 = IS_CAUSAL ? first : 0; i0 < a->queries; i0 += COLUMNS) {
      const tile_t queries = tile(POINTER(query) + HEAD_OFFSET(a->query, b, h), a->query, i0,
                                  a->queries, a->query_dim);
      const tile_t grads = tile(POINTER(grad_out) + HEAD_OFFSET(a->out, b, h), a->out, i0,
                                a->queries, a->value_dim);
      multiply(products, stage, values, grads);
      multiply(scores, stage, keys, queries);
      mask_scores(scores, a, POINTER(mask) + HEAD_OFFSET(a->mask, b, h), a->mask.column,
                  a->mask.row, 1, first, a->keys, i0, a->queries);
      for (int l = 0; l < 4; ++l) {
        const size_t row =
            first_row + min(i0 + (int)get_local_id(0) * 4 + l, a->queries - 1);
        const float normaliser = POINTER(logsumexp)[row];
        const float delta = POINTER(delta)[row];
#if HAS_DROPOUT
        const int item_row = get_local_id(1) * ITEM_ROWS;
        uint bits[4];
        vstore4(dropout_bits(a, row, (first + item_row) / 4), 0, bits);
#endif
        for (int i = 0; i < ITEM_ROWS; ++i) {
          const float weight = exp(scores[i][l] - normaliser);
#if HAS_DROPOUT
          const float keep = keep_scale(a, bits[(item_row + i) % 4]);
#else
          const float keep = 1;
#endif
          scores[i][l] = weight * keep;
          products[i][l] = weight * (products[i][l] * keep - delta);
        }
      }
      put_weights(weights, scores);
      accumulate(sums, weights, stage, grads);
      ADD_UP(value_totals, 1, sums, 1)
      barrier(CLK_LOCAL_MEM_FENCE);
      put_weights(weights, products);
      accumulate(sums, weights, stage, queries);
      ADD_UP(key_totals, 1, sums, a->scale)
    }
  }
  store_rows(POINTER(grad_key) + HEAD_OFFSET(a->grad_key, b, key_head), a->grad_key, first,
             a->keys, a->query_dim, key_totals);
  store_rows(POINTER(grad_value) + HEAD_OFFSET(a->grad_value, b, key_head), a->grad_value,
             first, a->keys, a->value_dim, value_totals);
}
