// Scaled dot product attention of 16-bit tensors by a GPU's matrix units, without the
// matrix of scores: Dao, FlashAttention-2 (2023). A work-group owns ROWS queries.

#include "types.clh"
#include "philox.clh"
#include "attention.clh"
#include "attention_units.clh"

// Of a row's values that its items have, all columns of a unit: each item takes eight.
// They lie where the tile of values will.
#define SHARES (UNIT_COLUMNS / 8)
#define PARTIALS (UNIT_COLUMNS + 4)
#define PUT_PARTIAL(e, u, values) partials[ROW_OF(e)][SUM_COLUMN(e)] = values.s##e;
#define GET_REDUCED(e, reduce, values)                                               \
  values.s##e = SHARES == 1 ? shares[ROW_OF(e)][0]                                   \
                            : reduce(shares[ROW_OF(e)][0], shares[ROW_OF(e)][SHARES - 1]);
#define REDUCE_ROWS(values, reduce)                                                  \
  FOR_ELEMENTS(PUT_PARTIAL, 0, values)                                               \
  barrier(CLK_LOCAL_MEM_FENCE);                                                      \
  {                                                                                  \
    const int row = top + item / SHARES;                                             \
    const local float4 *eight = (local float4 *)&partials[row][item % SHARES * 8];   \
    const float4 four = reduce(eight[0], eight[1]);                                  \
    const float2 two = reduce(four.xy, four.zw);                                     \
    shares[row][item % SHARES] = reduce(two.x, two.y);                               \
  }                                                                                  \
  barrier(CLK_LOCAL_MEM_FENCE);                                                      \
  FOR_ELEMENTS(GET_REDUCED, reduce, values)
#define ADD(a, b) ((a) + (b))

#define TAKE_LARGEST(u, name) now = fmax(now, name##_score_##u);
#define WEIGH(u, name)                                          \
  name##_score_##u = WEIGHT_OF(name##_score_##u - base);       \
  normaliser += name##_score_##u;
#define DROP(e, u, name) \
  if (!KEEP(e, u)) name##_score_##u.s##e = 0;
#define DROP_SCORES(u, name) FOR_ELEMENTS(DROP, u, name)
#define SCALE_SUM(u, name) name##_sum_##u *= factor;
#define STORE_LOGARITHM(e, u, name)                                              \
  if (SUM_COLUMN(e) == 0 && first + ROW_OF(e) < row_limit) {                     \
    POINTER(name)[first_row + first + ROW_OF(e)] = logarithm.s##e;               \
  }

UNITS_KERNEL attention_matrix(ATTENTION_PARAMETERS, TENSOR(storage_t, out),
                              TENSOR(float, logsumexp)) {
  LOCAL_FRAGMENTS(1, 1)
  ROW_TILE(query, ROWS)
  TILE_AND_WEIGHTS(key)
  local ushort value_space[SPACE_OF(HEAD_DIM * (COLUMNS + PAD), ROWS * PARTIALS * 2)] ALIGNED;
  local ushort(*const value_transposed)[COLUMNS + PAD] =
      (local ushort(*)[COLUMNS + PAD])value_space;
  local float(*const partials)[PARTIALS] = (local float(*)[PARTIALS])value_space;
  local float shares[ROWS][SHARES];
  BEGIN_QUERIES
  DECLARE_WALK(key, keys, a->key, 0, end, a->query_dim)
  DECLARE_WALK(value, values, a->value, 0, end, a->value_dim)

  FOR_SUMS(DECLARE_SUM, value)
  float8 largest = -INFINITY;
  float8 normaliser = 0;
  GET_TILE(key)
  for (int tile_first = 0; tile_first < end; tile_first += COLUMNS) {
    barrier(CLK_LOCAL_MEM_FENCE);
    PUT_TILE(key)
    DRAW_KEEPS
    GET_TILE(value)
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_SCORES(DECLARE_SCORE, key)
#pragma unroll UNROLL
    for (int k = 0; k < HEAD_DIM; k += 16) {
      GET_LEFT_FRAGMENT(query_tile, k)
      FOR_SCORES(ADD_SCORE, key)
    }
    FOR_SCORES(MASK_SCORES, key)
    float8 now = largest;
    FOR_SCORES(TAKE_LARGEST, key)
    REDUCE_ROWS(now, fmax)
    // A row that is masked so far has no maximum.
    const float8 base = select(now, (float8)(0), now == -INFINITY);
    const float8 factor = WEIGHT_OF(largest - base);
    largest = now;
    normaliser *= factor;
    FOR_SCORES(WEIGH, key)
#if HAS_DROPOUT
    FOR_SCORES(DROP_SCORES, key)
#endif
    FOR_SCORES(PUT_WEIGHTS, key)
    PUT_TRANSPOSED(value)
    GET_TILE(key)
    FOR_SUMS(SCALE_SUM, value)
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll UNROLL
    for (int k = 0; k < COLUMNS; k += 16) {
      GET_LEFT_FRAGMENT(key_weights, k)
      FOR_SUMS(ADD_SUM, value)
    }
  }

  barrier(CLK_LOCAL_MEM_FENCE);
  REDUCE_ROWS(normaliser, ADD)
  const int8 is_empty = normaliser == 0;
  // exp(score - inf) is 0: what backward needs.
  const float8 logarithm =
      select(largest + log(normaliser), (float8)(INFINITY), is_empty);
  const float8 factor = select(a->keep_scale / normaliser, (float8)(0), is_empty);
  FOR_SUMS(SCALE_SUM, value)
  STORE_TILE(value, POINTER(out) + HEAD_OFFSET(a->out, b, h), a->out, a->value_dim)
  FOR_ELEMENTS(STORE_LOGARITHM, 0, logsumexp)
}
