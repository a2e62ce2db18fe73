// Matrix products of 16-bit operands by a GPU's matrix units: out = alpha * A B +
// beta * self, with sums in float.
//
// The parameters are those of product_gpu.cl. A work-group computes TILE_ROWS x
// TILE_COLUMNS outputs, a wave UNITS_DOWN x 2 of the units' matrices (matrix_units.clh).
// Both tiles of local memory have their lines along the depth; operands that lie along
// lines are transposed in registers, four by four.

#include "types.clh"
#include "panels.clh"
#include "product_vectors.clh"
#include "product_image.clh"

#define ITEMS (TILE_ROWS * TILE_COLUMNS / (ITEM_ROWS * ITEM_COLUMNS))
#define PAD 8  // 16 bytes: fragments of neighbouring lines lie in other banks

// Along the depth a step's lanes read whole lines. Along lines eight lanes read 64 bytes,
// and the four loads of an item are of the same lines: ITEMS * 16 elements are a tile's.
#define LINE_OF(tile, along_lines, width, e)                                        \
  ((width) == 4 ? ((along_lines)                                                    \
                       ? lane % 8 * 4 + lane / 64 * 32                              \
                       : lane / (STEP / 4) + (e) * (ITEMS / (STEP / 4)))            \
   : (along_lines) ? (lane + (e) * ITEMS) % (tile)                                  \
                   : lane / STEP + (e) * (ITEMS / STEP))
#define DEPTH_OF(tile, along_lines, width, e)                                    \
  ((width) == 4 ? ((along_lines) ? lane / 8 % 8 * 4 + (e) % 4                    \
                                 : lane % (STEP / 4) * 4)                        \
   : (along_lines) ? (lane + (e) * ITEMS) / (tile)                               \
                   : lane % STEP)

#include "product_loads.clh"
#include "matrix_units.clh"

#define PUT_LINE(tile, line, k, a, b, c, d) \
  *(local ushort4 *)&tile[line][k] = (ushort4)(a, b, c, d);
#define PUT_BLOCK(tile, line, k, a, b, c, d)                \
  PUT_LINE(tile, line, k, a.x, b.x, c.x, d.x)               \
  PUT_LINE(tile, (line) + 1, k, a.y, b.y, c.y, d.y)         \
  PUT_LINE(tile, (line) + 2, k, a.z, b.z, c.z, d.z)         \
  PUT_LINE(tile, (line) + 3, k, a.w, b.w, c.w, d.w)
#define PUT_LEFT_BLOCK(a, b, c, d)                                                   \
  PUT_BLOCK(left_tile, LEFT_LINE(a), LEFT_DEPTH(a), LOADED_LEFT(a), LOADED_LEFT(b),  \
            LOADED_LEFT(c), LOADED_LEFT(d))
#define PUT_RIGHT_BLOCK(a, b, c, d)                                                      \
  PUT_BLOCK(right_tile, RIGHT_LINE(a), RIGHT_DEPTH(a), LOADED_RIGHT(a), LOADED_RIGHT(b), \
            LOADED_RIGHT(c), LOADED_RIGHT(d))
#if LEFT_WIDTH == 4 && LEFT_ALONG_LINES
#define PUT_LEFT PUT_LEFT_BLOCK(0, 1, 2, 3)
#elif LEFT_WIDTH == 4
#define PUT_ONE_LEFT(e) \
  *(local ushort4 *)&left_tile[LEFT_LINE(e)][LEFT_DEPTH(e)] = LOADED_LEFT(e);
#else
#define PUT_ONE_LEFT(e) left_tile[LEFT_LINE(e)][LEFT_DEPTH(e)] = LOADED_LEFT(e);
#endif
#ifndef PUT_LEFT
#define PUT_LEFT FOR_LEFT_LOADS(PUT_ONE_LEFT)
#endif
#if RIGHT_WIDTH == 4 && RIGHT_ALONG_LINES
#define PUT_RIGHT PUT_RIGHT_BLOCK(0, 1, 2, 3)
#elif RIGHT_WIDTH == 4
#define PUT_ONE_RIGHT(e) \
  *(local ushort4 *)&right_tile[RIGHT_LINE(e)][RIGHT_DEPTH(e)] = LOADED_RIGHT(e);
#else
#define PUT_ONE_RIGHT(e) right_tile[RIGHT_LINE(e)][RIGHT_DEPTH(e)] = LOADED_RIGHT(e);
#endif
#ifndef PUT_RIGHT
#define PUT_RIGHT FOR_RIGHT_LOADS(PUT_ONE_RIGHT)
#endif

#define UNITS_DOWN (ITEM_ROWS * ITEM_COLUMNS * WAVE / (2 * UNIT_ROWS * UNIT_COLUMNS))
#if ITEM_ROWS * ITEM_COLUMNS == 64
#define FOR_DOWN(body) body(0) body(1) body(2) body(3)
#define FOR_UNITS(body)                                                        \
  body(0, 0) body(0, 1) body(1, 0) body(1, 1) body(2, 0) body(2, 1) body(3, 0) body(3, 1)
#else
#define FOR_DOWN(body) body(0) body(1)
#define FOR_UNITS(body) body(0, 0) body(0, 1) body(1, 0) body(1, 1)
#endif
#define DECLARE_SUM(i, j) float8 sum_##i##_##j = 0;
#define GET_LEFT_FRAGMENT(i) \
  const left_fragment_t left_fragment_##i = LEFT_FRAGMENT(left_tile, top + i * UNIT_ROWS, k);
#define GET_RIGHT_FRAGMENT(j)                   \
  const right_fragment_t right_fragment_##j =   \
      RIGHT_FRAGMENT(right_tile, left_edge + j * UNIT_COLUMNS, k);
#define ADD_PRODUCT(i, j) sum_##i##_##j = MULTIPLY_UNITS(sum_##i##_##j, i, j);
#define WRITE_SUM(i, j, e)                                                           \
  WRITE_ONE(first_row + top + i * UNIT_ROWS + SUM_ROW(e),                            \
            first_column + left_edge + j * UNIT_COLUMNS + SUM_COLUMN(e),          \
            sum_##i##_##j.s##e)
#define WRITE_UNIT(i, j)                                                             \
  WRITE_SUM(i, j, 0) WRITE_SUM(i, j, 1) WRITE_SUM(i, j, 2) WRITE_SUM(i, j, 3)        \
  WRITE_SUM(i, j, 4) WRITE_SUM(i, j, 5) WRITE_SUM(i, j, 6) WRITE_SUM(i, j, 7)

kernel WAVE_ATTRIBUTE __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void product_matrix(PRODUCT_PARAMETERS) {
  local ushort left_tile[TILE_ROWS][STEP + PAD] __attribute__((aligned(32)));
  local ushort right_tile[TILE_COLUMNS][STEP + PAD] __attribute__((aligned(32)));
  LOCAL_FRAGMENTS(UNITS_DOWN, 2)
  const int lane = get_local_id(0);
  const int item = lane % WAVE;
  const int waves_across = TILE_COLUMNS / (2 * UNIT_COLUMNS);
  const int top = lane / WAVE / waves_across * (UNITS_DOWN * UNIT_ROWS);
  const int left_edge = lane / WAVE % waves_across * (2 * UNIT_COLUMNS);
  PLACE_TILE
  BEGIN_LOADS

  FOR_UNITS(DECLARE_SUM)
  int start = begin;
  if (start < end) LOAD_STEP
  while (start < end) {
    barrier(CLK_LOCAL_MEM_FENCE);
    PUT_LEFT
    PUT_RIGHT
    LOAD_NEXT_STEP
#pragma unroll UNROLL
    for (int k = 0; k < STEP; k += 16) {
      FOR_DOWN(GET_LEFT_FRAGMENT)
      GET_RIGHT_FRAGMENT(0)
      GET_RIGHT_FRAGMENT(1)
      EXCHANGE(FOR_DOWN(EXCHANGE_LEFT) EXCHANGE_RIGHT(0) EXCHANGE_RIGHT(1))
      FOR_UNITS(ADD_PRODUCT)
    }
  }

  PLACE_OUTPUT
  FOR_UNITS(WRITE_UNIT)
}
