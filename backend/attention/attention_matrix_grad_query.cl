// The gradient of attention's queries by a GPU's matrix units: three products. A
// work-group owns ROWS queries.

#include "types.clh"
#include "philox.clh"
#include "attention.clh"
#include "attention_units.clh"

#define GET_STATISTICS(e, u, name)                                             \
  {                                                                            \
    const size_t row = first_row + min(first + ROW_OF(e), row_limit - 1);      \
    normaliser.s##e = POINTER(logsumexp)[row];                                 \
    deltas.s##e = POINTER(delta)[row];                                         \
  }
#if HAS_DROPOUT
#define KEEP_GRAD(e, u, name) \
  name##_score_##u.s##e *= KEEP(e, u) ? a->keep_scale : 0.0f;
#else
#define KEEP_GRAD(e, u, name)
#endif
// value_score: the gradients of weights, then those of scores.
#define DIFFERENTIATE(u, name)                                                  \
  FOR_ELEMENTS(KEEP_GRAD, u, value)                                             \
  value_score_##u = WEIGHT_OF(key_score_##u - normaliser) * (value_score_##u - deltas);
#define SCALE_SUM(u, name) name##_sum_##u *= a->scale;

UNITS_KERNEL attention_matrix_grad_query(BACKWARD_PARAMETERS,
                                         TENSOR(storage_t, grad_query)) {
  LOCAL_FRAGMENTS(1, 1)
  ROW_TILE(query, ROWS)
  ROW_TILE(grad, ROWS)
  ROW_TILE(key, COLUMNS)
  TILE_AND_WEIGHTS(value)
  TRANSPOSED_TILE(key)
  BEGIN_QUERIES
  PUT_KEPT(grad_tile, POINTER(grad_out) + HEAD_OFFSET(a->out, b, h), a->out, first,
           a->queries, a->value_dim)
  DECLARE_WALK(key, keys, a->key, 0, end, a->query_dim)
  DECLARE_WALK(value, values, a->value, 0, end, a->value_dim)
  float8 normaliser, deltas;
  FOR_ELEMENTS(GET_STATISTICS, 0, 0)

  FOR_SUMS(DECLARE_SUM, key)
  GET_TILE(key)
  GET_TILE(value)
  for (int tile_first = 0; tile_first < end; tile_first += COLUMNS) {
    barrier(CLK_LOCAL_MEM_FENCE);
    PUT_TILE(key)
    PUT_TRANSPOSED(key)
    PUT_TILE(value)
    DRAW_KEEPS
    GET_TILE(key)
    GET_TILE(value)
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_SCORES(DECLARE_SCORE, key)
    FOR_SCORES(DECLARE_SCORE, value)
#pragma unroll UNROLL
    for (int k = 0; k < HEAD_DIM; k += 16) {
      GET_LEFT_FRAGMENT(query_tile, k)
      FOR_SCORES(ADD_SCORE, key)
    }
#pragma unroll UNROLL
    for (int k = 0; k < HEAD_DIM; k += 16) {
      GET_LEFT_FRAGMENT(grad_tile, k)
      FOR_SCORES(ADD_SCORE, value)
    }
    FOR_SCORES(MASK_SCORES, key)
    FOR_SCORES(DIFFERENTIATE, 0)
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_SCORES(PUT_WEIGHTS, value)
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll UNROLL
    for (int k = 0; k < COLUMNS; k += 16) {
      GET_LEFT_FRAGMENT(value_weights, k)
      FOR_SUMS(ADD_SUM, key)
    }
  }
  FOR_SUMS(SCALE_SUM, key)
  STORE_TILE(key, POINTER(grad_query) + HEAD_OFFSET(a->grad_query, b, h), a->grad_query,
             a->query_dim)
}
