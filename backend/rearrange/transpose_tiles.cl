// Copies between layouts whose innermost dimensions differ, on GPUs: dimension 0 is
// dense in the result, dimension 1 in the source. A work-group copies a square of TILE
// by TILE through local memory: both sides are read and written by whole sectors.

#include "types.clh"
#include "lanes.clh"
#include "layouts.clh"

#define TILE 32
#define LINES 8  // of a square, moved at once
#ifndef RANK
#define RANK 2
#endif

kernel __attribute__((reqd_work_group_size(TILE * LINES, 1, 1))) void copy_transposed_tiles(
    const problem_t problem, TENSOR(out_t, out), CONST_TENSOR(storage_t, self)) {
  // Padded: a column of the square lies in different banks.
  local compute_t square[TILE][TILE + 1];
  const problem_t *p = &problem;
  const int lane = get_local_id(0) % TILE;
  const int line = get_local_id(0) / TILE;
  const int row_blocks = (p->sizes[0] + TILE - 1) / TILE;
  const int column_blocks = (p->sizes[1] + TILE - 1) / TILE;
  int rest = (int)get_group_id(0);
  const int first_row = rest % row_blocks * TILE;
  rest /= row_blocks;
  const int first_column = rest % column_blocks * TILE;
  rest /= column_blocks;
  const global storage_t *x = POINTER(self);
  global out_t *y = POINTER(out);
#pragma unroll
  for (int d = 2; d < RANK; ++d) {
    const int place = rest % p->sizes[d];
    rest /= p->sizes[d];
    x += place * p->self_strides[d];
    y += place * p->out_strides[d];
  }
  for (int i = line; i < TILE; i += LINES) {
    const int row = first_row + i;
    const int column = first_column + lane;
    if (row < p->sizes[0] && column < p->sizes[1])
      square[i][lane] = LOAD(x, row * p->self_strides[0] + column);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = line; i < TILE; i += LINES) {
    const int row = first_row + lane;
    const int column = first_column + i;
    if (row < p->sizes[0] && column < p->sizes[1])
      STORE_OUT(y, column * p->out_strides[1] + row, square[lane][i]);
  }
}
