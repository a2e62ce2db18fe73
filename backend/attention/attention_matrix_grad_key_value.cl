// The gradients of attention's keys and values by a GPU's matrix units: four products. A
// work-group owns ROWS keys; scores are [key][query].

#include "types.clh"
#include "philox.clh"
#include "attention.clh"
#define MASK_IS_TRANSPOSED 1
#define LOADS_AHEAD (HEAD_DIM <= 64)  // registers are left for a tile
#include "attention_units.clh"

// query_score: scores, then weights. grad_score: gradients of weights, then of scores.
#define DIFFERENTIATE_ONE(e, u, name)                                                 \
  {                                                                                   \
    const float weight = WEIGHT_OF(query_score_##u.s##e - normalisers[COLUMN_OF(e, u)]); \
    const float keep = KEEP(e, u) ? keep_scale : 0.0f;                                \
    query_score_##u.s##e = weight * keep;                                             \
    grad_score_##u.s##e =                                                             \
        weight * (grad_score_##u.s##e * keep - deltas[COLUMN_OF(e, u)]);              \
  }
#define DIFFERENTIATE(u, name) FOR_ELEMENTS(DIFFERENTIATE_ONE, u, name)
#define SCALE_SUM(u, name) name##_sum_##u *= a->scale;

UNITS_KERNEL attention_matrix_grad_key_value(BACKWARD_PARAMETERS,
                                             TENSOR(storage_t, grad_key),
                                             TENSOR(storage_t, grad_value)) {
  LOCAL_FRAGMENTS(1, 1)
  ROW_TILE(key, ROWS)
  ROW_TILE(value, ROWS)
  TILE_AND_WEIGHTS(query)
  TILE_AND_WEIGHTS(grad)
  TRANSPOSED_TILE(query)
  TRANSPOSED_TILE(grad)
  local float normalisers[COLUMNS];
  local float deltas[COLUMNS];
  DECLARE_KEEPS
  PLACE_ITEM
  OWN_KEYS(ROWS)
  const int row_limit = a->keys;
  const int column_limit = a->queries;
  const float keep_scale = HAS_DROPOUT ? a->keep_scale : 1.0f;
  PUT_KEPT(key_tile, POINTER(key) + HEAD_OFFSET(a->key, b, key_head), a->key, first,
           a->keys, a->query_dim)
  PUT_KEPT(value_tile, POINTER(value) + HEAD_OFFSET(a->value, b, key_head), a->value, first,
           a->keys, a->value_dim)

  FOR_SUMS(DECLARE_SUM, query)
  FOR_SUMS(DECLARE_SUM, grad)
  // Queries before the tile's first key see none of its keys.
  const int begin = IS_CAUSAL ? first : 0;
  for (int h = key_head * group; h < (key_head + 1) * group; ++h) {
    const size_t first_row = (b * a->heads + h) * a->queries;
    const global mask_t *head_mask = POINTER(mask) + HEAD_OFFSET(a->mask, b, h);
    DECLARE_WALK(query, POINTER(query) + HEAD_OFFSET(a->query, b, h), a->query, begin,
                 a->queries, a->query_dim)
    DECLARE_WALK(grad, POINTER(grad_out) + HEAD_OFFSET(a->out, b, h), a->out, begin,
                 a->queries, a->value_dim)
#if LOADS_AHEAD
    GET_TILE(query)
    GET_TILE(grad)
#endif
    for (int tile_first = begin; tile_first < a->queries; tile_first += COLUMNS) {
#if !LOADS_AHEAD
      GET_TILE(query)
      GET_TILE(grad)
#endif
      barrier(CLK_LOCAL_MEM_FENCE);
      PUT_TILE(query)
      PUT_TRANSPOSED(query)
      PUT_TILE(grad)
      PUT_TRANSPOSED(grad)
      DRAW_KEEPS
      if (lane < COLUMNS) {
        const size_t row = first_row + min(tile_first + lane, a->queries - 1);
        normalisers[lane] = POINTER(logsumexp)[row];
        deltas[lane] = POINTER(delta)[row];
      }
#if LOADS_AHEAD
      GET_TILE(query)
      GET_TILE(grad)
#endif
      barrier(CLK_LOCAL_MEM_FENCE);
      FOR_SCORES(DECLARE_SCORE, query)
      FOR_SCORES(DECLARE_SCORE, grad)
#pragma unroll UNROLL
      for (int k = 0; k < HEAD_DIM; k += 16) {
        GET_LEFT_FRAGMENT(key_tile, k)
        FOR_SCORES(ADD_SCORE, query)
      }
#pragma unroll UNROLL
      for (int k = 0; k < HEAD_DIM; k += 16) {
        GET_LEFT_FRAGMENT(value_tile, k)
        FOR_SCORES(ADD_SCORE, grad)
      }
      FOR_SCORES(MASK_SCORES, query)
      FOR_SCORES(DIFFERENTIATE, 0)
      barrier(CLK_LOCAL_MEM_FENCE);
      FOR_SCORES(PUT_WEIGHTS, query)
      FOR_SCORES(PUT_WEIGHTS, grad)
      barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll UNROLL
      for (int k = 0; k < COLUMNS; k += 16) {
        GET_LEFT_FRAGMENT(query_weights, k)
        FOR_SUMS(ADD_SUM, grad)
      }
#pragma unroll UNROLL
      for (int k = 0; k < COLUMNS; k += 16) {
        GET_LEFT_FRAGMENT(grad_weights, k)
        FOR_SUMS(ADD_SUM, query)
      }
    }
  }
  FOR_SUMS(SCALE_SUM, query)
  STORE_TILE(query, POINTER(grad_key) + HEAD_OFFSET(a->grad_key, b, key_head), a->grad_key,
             a->query_dim)
  STORE_TILE(grad, POINTER(grad_value) + HEAD_OFFSET(a->grad_value, b, key_head),
             a->grad_value, a->value_dim)
}
