// Scaled dot product attention for CPUs, forward and backward, without the
// matrix of scores: Dao, FlashAttention-2 (2023).
//
// A work-item owns a panel of WIDTH rows (queries; keys for the gradients of
// keys and values), one row a vector lane, and streams the other side past it
// in blocks of BLOCK rows that are widened to float once. A block's scores are
// [row of the block][lane], so maxima and sums of the softmax are plain vector
// operations. Panels are [column][lane]; two products do all the work:
//   multiply    scores[row][lane] = sum over columns of row * panel
//   accumulate  panel[column][lane] += sum over rows of weight * row

#define LANES 16
#include "types.clh"
#include "lanes.clh"
#include "philox.clh"
#include "attention.clh"
#include "attention_panels.clh"

#define LANE_NUMBERS (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)

// scores = scores * scale + mask, with -inf above the diagonal. `mask` is at
// the head's first element; lanes and rows are numbered from first_lane and
// first_row.
inline void mask_scores(line_t *scores, const attention_t *a, const global mask_t *mask,
                        long row_stride, long lane_stride, int lanes_are_keys,
                        int first_row, int count, int first_lane, int lane_limit) {
#if HAS_MASK
  line_t bias[BLOCK];
  mask += first_row * row_stride;
  if (lane_stride == 0) {
    for (int r = 0; r < count; ++r) {
      for (int v = 0; v < VECTORS; ++v) bias[r][v] = load_bias(mask, r * row_stride);
    }
  } else {
    private float *lanes = (private float *)bias;
    for (int lane = 0; lane < WIDTH; ++lane) {
      const global mask_t *line = mask + min(first_lane + lane, lane_limit - 1) * lane_stride;
      for (int r = 0; r < count; ++r) {
        lanes[r * WIDTH + lane] = load_bias(line, r * row_stride);
      }
    }
  }
  for (int r = 0; r < count; ++r) {
    for (int v = 0; v < VECTORS; ++v) scores[r][v] = fma(scores[r][v], a->scale, bias[r][v]);
  }
#else
  for (int r = 0; r < count; ++r) {
    for (int v = 0; v < VECTORS; ++v) scores[r][v] *= a->scale;
  }
#endif
#if IS_CAUSAL
  const int is_below = lanes_are_keys ? first_lane + WIDTH - 1 <= first_row
                                      : first_row + count - 1 <= first_lane;
  if (is_below) return;
  for (int r = 0; r < count; ++r) {
    for (int v = 0; v < VECTORS; ++v) {
      const int16 lane = first_lane + v * 16 + LANE_NUMBERS;
      const int16 hidden = lanes_are_keys ? lane > first_row + r : lane < first_row + r;
      scores[r][v] = select(scores[r][v], (float16)-INFINITY, hidden);
    }
  }
#endif
}

#if HAS_DROPOUT
// dropout_bits of 16 elements at a time.
inline void dropout_lanes(uint16 *bits, const attention_t *a, uint16 row, uint16 key_group) {
  uint2 key = (uint2)((uint)a->seed, (uint)(a->seed >> 32));
  uint16 s0 = (uint)a->offset;
  uint16 s1 = (uint)(a->offset >> 32);
  uint16 s2 = row;
  uint16 s3 = key_group;
  for (int i = 0; i < 10; ++i) {
    const ulong16 product0 = convert_ulong16(s0) * 0xD2511F53ul;
    const ulong16 product1 = convert_ulong16(s2) * 0xCD9E8D57ul;
    s0 = convert_uint16(product1 >> 32) ^ s1 ^ key.s0;
    s2 = convert_uint16(product0 >> 32) ^ s3 ^ key.s1;
    s1 = convert_uint16(product1);
    s3 = convert_uint16(product0);
    key += (uint2)(0x9E3779B9u, 0xBB67AE85u);
  }
  bits[0] = s0 >> 8;
  bits[1] = s1 >> 8;
  bits[2] = s2 >> 8;
  bits[3] = s3 >> 8;
}

#define KEEP(bits) \
  select((float16)0, (float16)a->keep_scale, as_int16(bits) >= (int)a->threshold)

// Lanes are queries and rows are keys; `row` numbers the query over all heads.
inline void drop_query_lanes(line_t *values, const attention_t *a, uint row, int key,
                             int count) {
  for (int r = 0; r < count; r += 4) {
    for (int v = 0; v < VECTORS; ++v) {
      uint16 bits[4];
      dropout_lanes(bits, a, row + v * 16 + as_uint16(LANE_NUMBERS), (uint)(key + r) / 4);
      for (int i = 0; i < 4; ++i) values[r + i][v] *= KEEP(bits[i]);
    }
  }
}

// Lanes are keys and rows are queries.
inline void keep_key_lanes(line_t *keep, const attention_t *a, uint row, int key, int count) {
  for (int r = 0; r < count; r += 4) {
    for (int v = 0; v < VECTORS; ++v) {
      // Four queries by four groups of four keys.
      uint16 bits[4];
      dropout_lanes(bits, a, row + r + as_uint16(LANE_NUMBERS) / 4,
                    (uint)(key + v * 16) / 4 + as_uint16(LANE_NUMBERS) % 4);
      const private uint *drawn = (const private uint *)bits;
      uint16 lines[4];
      private uint *line = (private uint *)lines;
      for (int i = 0; i < 64; ++i) {
        line[i] = drawn[i % 4 * 16 + i / 4];
      }
      for (int i = 0; i < 4; ++i) keep[r + i][v] = KEEP(lines[i]);
    }
  }
}
#endif

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_forward_cpu(ATTENTION_PARAMETERS, TENSOR(storage_t, out),
                           TENSOR(float, logsumexp)) {
  OWN_QUERIES(WIDTH)

  FORWARD_PANELS
  load_panel(queries, POINTER(query) + HEAD_OFFSET(a->query, b, h), a->query, first,
             a->queries, a->query_dim);
  clear_panel(sums, (a->value_dim + TILE - 1) / TILE * TILE);
  float16 largest[VECTORS];
  float16 normaliser[VECTORS];
  clear_softmax(largest, normaliser);
  for (int j = 0; j < end; j += BLOCK) {
    const int count = min(BLOCK, end - j);
    load_block(block, keys, a->key, j, count, a->query_dim);
    multiply(scores, queries, block, count, a->query_dim);
    mask_scores(scores, a, POINTER(mask) + HEAD_OFFSET(a->mask, b, h), a->mask.column,
                a->mask.row, 0, j, count, first, a->queries);
    float16 factor[VECTORS];
    weights_of(scores, largest, normaliser, factor, count);
#if HAS_DROPOUT
    drop_query_lanes(scores, a, first_row + first, j, count);
#endif
    load_block(block, values, a->value, j, count, a->value_dim);
    accumulate(sums, factor, scores, block, count, a->value_dim);
  }

  line_t total;
  for (int v = 0; v < VECTORS; ++v) {
    const int16 is_masked = normaliser[v] == 0;
    const float16 inverse = select(1 / normaliser[v], (float16)0, is_masked);
    for (int d = 0; d < a->value_dim; ++d) sums[d][v] *= inverse;
    // exp(score - inf) is 0: what backward needs.
    total[v] = select(largest[v] + log(normaliser[v]), (float16)INFINITY, is_masked);
  }
  store_panel(POINTER(out) + HEAD_OFFSET(a->out, b, h), a->out, sums, first, a->queries,
              a->value_dim);
  const private float *lanes = (const private float *)total;
  for (int lane = 0; lane < min(WIDTH, a->queries - first); ++lane) {
    POINTER(logsumexp)[first_row + first + lane] = lanes[lane];
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_grad_query_cpu(BACKWARD_PARAMETERS, TENSOR(storage_t, grad_query)) {
  OWN_QUERIES(WIDTH)

  GRAD_QUERY_PANELS
  load_panel(queries, POINTER(query) + HEAD_OFFSET(a->query, b, h), a->query, first,
             a->queries, a->query_dim);
  load_panel(grads, POINTER(grad_out) + HEAD_OFFSET(a->out, b, h), a->out, first,
             a->queries, a->value_dim);
  clear_panel(sums, (a->query_dim + TILE - 1) / TILE * TILE);
  line_t total;
  line_t deltas;
  float16 one[VECTORS];
  for (int lane = 0; lane < WIDTH; ++lane) {
    const size_t row = first_row + min(first + lane, a->queries - 1);
    ((private float *)total)[lane] = POINTER(logsumexp)[row];
    ((private float *)deltas)[lane] = POINTER(delta)[row];
  }
  for (int v = 0; v < VECTORS; ++v) one[v] = 1;
  for (int j = 0; j < end; j += BLOCK) {
    const int count = min(BLOCK, end - j);
    load_block(block, values, a->value, j, count, a->value_dim);
    multiply(products, grads, block, count, a->value_dim);
    load_block(block, keys, a->key, j, count, a->query_dim);
    multiply(scores, queries, block, count, a->query_dim);
    mask_scores(scores, a, POINTER(mask) + HEAD_OFFSET(a->mask, b, h), a->mask.column,
                a->mask.row, 0, j, count, first, a->queries);
#if HAS_DROPOUT
    drop_query_lanes(products, a, first_row + first, j, count);
#endif
    for (int r = 0; r < count; ++r) {
      for (int v = 0; v < VECTORS; ++v) {
        scores[r][v] = exp_below(scores[r][v] - total[v]) * (products[r][v] - deltas[v]);
      }
    }
    accumulate(sums, one, scores, block, count, a->query_dim);
  }
  for (int d = 0; d < a->query_dim; ++d) {
    for (int v = 0; v < VECTORS; ++v) sums[d][v] *= a->scale;
  }
  store_panel(POINTER(grad_query) + HEAD_OFFSET(a->grad_query, b, h), a->grad_query, sums,
              first, a->queries, a->query_dim);
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_grad_key_value_cpu(BACKWARD_PARAMETERS, TENSOR(storage_t, grad_key),
                                  TENSOR(storage_t, grad_value)) {
  OWN_KEYS(WIDTH)

  GRAD_KEY_VALUE_PANELS
  load_panel(keys, POINTER(key) + HEAD_OFFSET(a->key, b, key_head), a->key, first, a->keys,
             a->query_dim);
  load_panel(values, POINTER(value) + HEAD_OFFSET(a->value, b, key_head), a->value, first,
             a->keys, a->value_dim);
  clear_panel(key_sums, (a->query_dim + TILE - 1) / TILE * TILE);
  clear_panel(value_sums, (a->value_dim + TILE - 1) / TILE * TILE);
  float16 one[VECTORS];
  for (int v = 0; v < VECTORS; ++v) one[v] = 1;
  for (int h = key_head * group; h < (key_head + 1) * group; ++h) {
    const size_t first_row = (b * a->heads + h) * a->queries;
    const global float *totals = POINTER(logsumexp) + first_row;
    const global float *deltas = POINTER(delta) + first_row;
    // Queries before the panel's first key see none of its keys.
    for (int i = IS_CAUSAL ? first : 0; i < a->queries; i += BLOCK) {
      const int count = min(BLOCK, a->queries - i);
      load_block(queries, POINTER(query) + HEAD_OFFSET(a->query, b, h), a->query, i, count,
                 a->query_dim);
      load_block(grads, POINTER(grad_out) + HEAD_OFFSET(a->out, b, h), a->out, i, count,
                 a->value_dim);
      multiply(scores, keys, queries, count, a->query_dim);
      multiply(products, values, grads, count, a->value_dim);
      mask_scores(scores, a, POINTER(mask) + HEAD_OFFSET(a->mask, b, h), a->mask.row,
                  a->mask.column, 1, i, count, first, a->keys);
#if HAS_DROPOUT
      line_t keep[BLOCK];
      keep_key_lanes(keep, a, first_row + i, first, count);
#endif
      for (int r = 0; r < count; ++r) {
        for (int v = 0; v < VECTORS; ++v) {
          const float16 weight = exp_below(scores[r][v] - totals[i + r]);
#if HAS_DROPOUT
          scores[r][v] = weight * keep[r][v];
          products[r][v] = weight * (products[r][v] * keep[r][v] - deltas[i + r]);
#else
          scores[r][v] = weight;
          products[r][v] = weight * (products[r][v] - deltas[i + r]);
#endif
        }
      }
      accumulate(value_sums, one, scores, grads, count, a->value_dim);
      accumulate(key_sums, one, products, queries, count, a->query_dim);
    }
  }
  for (int d = 0; d < a->query_dim; ++d) {
    for (int v = 0; v < VECTORS; ++v) key_sums[d][v] *= a->scale;
  }
  store_panel(POINTER(grad_key) + HEAD_OFFSET(a->grad_key, b, key_head), a->grad_key,
              key_sums, first, a->keys, a->query_dim);
  store_panel(POINTER(grad_value) + HEAD_OFFSET(a->grad_value, b, key_head), a->grad_value,
              value_sums, first, a->keys, a->value_dim);
}
