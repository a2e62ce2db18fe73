// Copies between layouts whose innermost dimensions differ, on CPUs: dimension 0
// is dense in the result, dimension 1 in the source. A work-item copies ROWS by
// `chunk` elements in squares of LANES, each of which is transposed in
// registers, so that both sides are read and written by whole lines of memory.

#include "types.clh"
#include "lanes.clh"
#include "transpose_vectors.clh"
#include "layouts.clh"
#include "prefetch.clh"

#ifndef ROWS
#define ROWS 64  // of dimension 0: neighbouring elements of the result's lines
#endif

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void copy_transposed(
    const problem_t problem, TENSOR(out_t, out), CONST_TENSOR(storage_t, self)) {
  const problem_t *p = &problem;
  const int row_blocks = (p->sizes[0] + ROWS - 1) / ROWS;
  const int chunks = (p->sizes[1] + p->chunk - 1) / p->chunk;
  int rest = (int)get_global_id(0);
  const int first_row = rest % row_blocks * ROWS;
  rest /= row_blocks;
  const int first_column = rest % chunks * p->chunk;
  rest /= chunks;
  const global storage_t *x = POINTER(self);
  global out_t *y = POINTER(out);
  for (int d = 2; d < p->rank; ++d) {
    const int place = rest % p->sizes[d];
    rest /= p->sizes[d];
    x += place * p->self_strides[d];
    y += place * p->out_strides[d];
  }
  const int end_row = min(first_row + ROWS, p->sizes[0]);
  const int end_column = min(first_column + p->chunk, p->sizes[1]);
  const int x_pitch = p->self_strides[0];
  const int y_pitch = p->out_strides[1];
  for (int column = first_column; column < end_column; column += LANES)
    for (int row = first_row; row < end_row; row += LANES) {
      if (row + LANES <= end_row && column + LANES <= end_column) {
        lanes_t a[LANES];
#pragma unroll
        for (int i = 0; i < LANES; ++i) {
          PREFETCH(x + ((row + i) * x_pitch + column + LANES));
          a[i] = CONCAT(load_lanes_, DTYPE)(x + ((row + i) * x_pitch + column));
        }
        transpose(a);
        global out_t *corner = y + (column * y_pitch + row);
        if (is_non_temporal(corner, y_pitch)) {
#pragma unroll
          for (int i = 0; i < LANES; ++i) store_aligned_lanes_nt(corner + i * y_pitch, a[i]);
        } else {
#pragma unroll
          for (int i = 0; i < LANES; ++i)
            CONCAT(store_lanes_, OUT_DTYPE)(corner + i * y_pitch, a[i]);
        }
        continue;
      }
      for (int j = column; j < min(column + LANES, end_column); ++j)
        for (int i = row; i < min(row + LANES, end_row); ++i)
          STORE_OUT(y, j * y_pitch + i, LOAD(x, i * x_pitch + j));
    }
}
