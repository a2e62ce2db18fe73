// Matrix products for gpu-class devices: out = alpha * A B + beta * self.
//
// A work-group of ITEMS computes TILE_ROWS x TILE_COLUMNS outputs, ITEM_ROWS x
// ITEM_COLUMNS a work-item. STEP of the depth at a time go through local memory,
// depth-major; what comes next is loaded into registers while a step is multiplied.
// Operands are unpacked, in their original layout: LEFT_ALONG_LINES / RIGHT_ALONG_LINES say whether
// lanes and vectors of LEFT_WIDTH / RIGHT_WIDTH run along rows (columns), or along the
// depth. With IS_IMAGE the right operand's columns are those of a convolution, made
// while they are loaded (product_image.clh).
//
// Sums run over the depth in order; with HAS_TOTALS every SUM_BLOCK of it goes to a
// total. Where the depth is split among work-groups, `out` are their parts
// (product_parts.cl). What registers hold has names, written out by macros: compilers
// may leave an array in memory, whatever its indices.

#include "types.clh"
#include "panels.clh"
#include "product_vectors.clh"
#include "product_image.clh"

#define GROUP_ROWS (TILE_ROWS / ITEM_ROWS)
#define GROUP_COLUMNS (TILE_COLUMNS / ITEM_COLUMNS)
#define ITEMS (GROUP_ROWS * GROUP_COLUMNS)
#define PAD 4  // spreads stores along the depth over the banks
#define HAS_TWO_ROWS (ITEM_ROWS == 8)  // of vectors of four
#define HAS_TWO_COLUMNS (ITEM_COLUMNS == 8)

#if HAS_TWO_COLUMNS
#define FOR_COLUMNS(body, i) body(i, 0) body(i, 1)
#else
#define FOR_COLUMNS(body, i) body(i, 0)
#endif
#define FOR_FOUR_ROWS(body, a, b, c, d) \
  FOR_COLUMNS(body, a) FOR_COLUMNS(body, b) FOR_COLUMNS(body, c) FOR_COLUMNS(body, d)
#if HAS_TWO_ROWS
#define FOR_SUMS(body) FOR_FOUR_ROWS(body, 0, 1, 2, 3) FOR_FOUR_ROWS(body, 4, 5, 6, 7)
#else
#define FOR_SUMS(body) FOR_FOUR_ROWS(body, 0, 1, 2, 3)
#endif

// Where load `e` of an item lies in a tile. Along the depth, pairs of lanes read whole
// sectors of 32 bytes.
#define LINE_OF(tile, along_lines, width, e)                              \
  ((along_lines) ? lane % ((tile) / (width)) * (width)                    \
   : (width) == 4 ? (lane / 2 + (e) * (ITEMS / 2)) % (tile)               \
                  : lane / STEP + (e) * (ITEMS / STEP))
#define DEPTH_OF(tile, along_lines, width, e)                                    \
  ((along_lines) ? lane / ((tile) / (width)) + (e) * (ITEMS / ((tile) / (width))) \
   : (width) == 4 ? (lane % 2 + (lane / 2 + (e) * (ITEMS / 2)) / (tile) * 2) * 4  \
                  : lane % STEP)
// A load into a tile of local memory. It becomes numbers here: a conversion waits for
// the load.
#define PUT_1(tile, along_lines, line, k, loaded) \
  tile[k][line] = CONCAT(value_, OPERAND_DTYPE)(loaded);
#define PUT_4(tile, along_lines, line, k, loaded)                       \
  {                                                                     \
    const vec4_t value = CONCAT(value4_, OPERAND_DTYPE)(loaded);        \
    if (along_lines) {                                                  \
      *(local vec4_t *)&tile[k][line] = value;                          \
    } else {                                                            \
      tile[k][line] = value.x;                                          \
      tile[(k) + 1][line] = value.y;                                    \
      tile[(k) + 2][line] = value.z;                                    \
      tile[(k) + 3][line] = value.w;                                    \
    }                                                                   \
  }
#define PUT(width) CONCAT(PUT_, width)

#include "product_loads.clh"

#define PUT_LEFT(e) \
  PUT(LEFT_WIDTH)(left_tile, LEFT_ALONG_LINES, LEFT_LINE(e), LEFT_DEPTH(e), \
    LOADED_LEFT(e))
#define PUT_RIGHT(e) \
  PUT(RIGHT_WIDTH)(right_tile, RIGHT_ALONG_LINES, RIGHT_LINE(e), RIGHT_DEPTH(e), \
    LOADED_RIGHT(e))

#define FACTOR_0 factors_0.x
#define FACTOR_1 factors_0.y
#define FACTOR_2 factors_0.z
#define FACTOR_3 factors_0.w
#define FACTOR_4 factors_1.x
#define FACTOR_5 factors_1.y
#define FACTOR_6 factors_1.z
#define FACTOR_7 factors_1.w
// RDNA 3 issues two of these together if their factors, lines and sums are in different
// banks of registers: neighbours differ in row, in vector and in the place in it.
#define MULTIPLY(i, j, place) \
  sum_##i##_##j.place = fma(FACTOR_##i, line_##j.place, sum_##i##_##j.place);
#define MULTIPLY_PAIRS(i, j, k, l)                                              \
  MULTIPLY(i, j, x) MULTIPLY(k, l, y) MULTIPLY(i, j, y) MULTIPLY(k, l, x)       \
  MULTIPLY(i, j, z) MULTIPLY(k, l, w) MULTIPLY(i, j, w) MULTIPLY(k, l, z)
#if HAS_TWO_COLUMNS
#define MULTIPLY_ROWS(i, k) MULTIPLY_PAIRS(i, 0, k, 1) MULTIPLY_PAIRS(i, 1, k, 0)
#else
#define MULTIPLY_ROWS(i, k) MULTIPLY_PAIRS(i, 0, k, 0)
#endif
#define DECLARE_SUM(i, j) vec4_t sum_##i##_##j = 0;
#define DECLARE_TOTAL(i, j) vec4_t total_##i##_##j = 0;
#define MOVE_TO_TOTAL(i, j)              \
  total_##i##_##j += sum_##i##_##j;      \
  sum_##i##_##j = 0;
#define ADD_TOTAL(i, j) sum_##i##_##j += total_##i##_##j;

#define ROW_OF(i) (first_row + ((i) * GROUP_ROWS + y) * 4)
#define COLUMN_OF(j) (first_column + ((j) * GROUP_COLUMNS + x) * 4)
#define WRITE_TOP(j)                                                       \
  WRITE_BLOCK(ROW_OF(0), COLUMN_OF(j), sum_0_##j, sum_1_##j, sum_2_##j, sum_3_##j)
#define WRITE_BOTTOM(j)                                                    \
  WRITE_BLOCK(ROW_OF(1), COLUMN_OF(j), sum_4_##j, sum_5_##j, sum_6_##j, sum_7_##j)

kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void product_gpu(PRODUCT_PARAMETERS) {
  local compute_t left_tile[STEP][TILE_ROWS + PAD] __attribute__((aligned(32)));
  local compute_t right_tile[STEP][TILE_COLUMNS + PAD] __attribute__((aligned(32)));
  const int lane = get_local_id(0);
  const int x = lane % GROUP_COLUMNS;
  const int y = lane / GROUP_COLUMNS;
  PLACE_TILE
  BEGIN_LOADS

  FOR_SUMS(DECLARE_SUM)
#if HAS_TOTALS
  FOR_SUMS(DECLARE_TOTAL)
#endif
  int start = begin;
  if (start < end) LOAD_STEP
  while (start < end) {
    // A loop of its own keeps the totals out of the registers' moves of every step.
    const int end_of_block = HAS_TOTALS ? min(start + SUM_BLOCK, end) : end;
    do {
      barrier(CLK_LOCAL_MEM_FENCE);
      FOR_LEFT_LOADS(PUT_LEFT)
      FOR_RIGHT_LOADS(PUT_RIGHT)
      LOAD_NEXT_STEP
#pragma unroll UNROLL
      for (int k = 0; k < STEP; ++k) {
        const vec4_t line_0 = *(local vec4_t *)&right_tile[k][x * 4];
#if HAS_TWO_COLUMNS
        const vec4_t line_1 = *(local vec4_t *)&right_tile[k][(GROUP_COLUMNS + x) * 4];
#endif
        const vec4_t factors_0 = *(local vec4_t *)&left_tile[k][y * 4];
        MULTIPLY_ROWS(0, 1) MULTIPLY_ROWS(2, 3)
#if HAS_TWO_ROWS
        const vec4_t factors_1 = *(local vec4_t *)&left_tile[k][(GROUP_ROWS + y) * 4];
        MULTIPLY_ROWS(4, 5) MULTIPLY_ROWS(6, 7)
#endif
      }
    } while (start < end_of_block);
#if HAS_TOTALS
    FOR_SUMS(MOVE_TO_TOTAL)
#endif
  }
#if HAS_TOTALS
  FOR_SUMS(ADD_TOTAL)
#endif

  PLACE_OUTPUT
  WRITE_TOP(0)
#if HAS_TWO_COLUMNS
  WRITE_TOP(1)
#endif
#if HAS_TWO_ROWS
  WRITE_BOTTOM(0)
#if HAS_TWO_COLUMNS
  WRITE_BOTTOM(1)
#endif
#endif
}
