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
#include "attention_tiles.clh"

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

// What an element is multiplied by.
inline float keep_scale(const attention_t *a, uint bits) {
  return bits >= a->threshold ? a->keep_scale : 0.0f;
}

kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void attention_forward_gpu(ATTENTION_PARAMETERS, TENSOR(storage_t, out),
                           TENSOR(float, logsumexp)) {
  LOCAL_TILES
  local float partial[GROUP];
  local float factors[ROWS];
  OWN_QUERIES(ROWS)
  const tile_t queries = tile(POINTER(query) + HEAD_OFFSET(a->query, b, h), a->query, first,
                              a->queries, a->query_dim);
  SOFTMAX_ROW
  for (int j = 0; j < end; j += COLUMNS) {
    multiply(scores, stage, queries, tile(keys, a->key, j, end, a->query_dim));
    mask_scores(scores, a, POINTER(mask) + HEAD_OFFSET(a->mask, b, h), a->mask.row,
                a->mask.column, 0, first, a->queries, j, end);
    const float now = largest_of_row(largest, weights, scores, span, partial, row);
    const float base = base_of(now);
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

  const float total = sum_of_row(normaliser, partial, row);
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

  GRAD_QUERY_SUMS
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

  GRAD_KEY_VALUE_SUMS
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
      ADD_GRAD_KEY_VALUE(a->scale)
    }
  }
  store_rows(POINTER(grad_key) + HEAD_OFFSET(a->grad_key, b, key_head), a->grad_key, first,
             a->keys, a->query_dim, key_totals);
  store_rows(POINTER(grad_value) + HEAD_OFFSET(a->grad_value, b, key_head), a->grad_value,
             first, a->keys, a->value_dim, value_totals);
}
