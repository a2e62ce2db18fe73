// The weight's gradient of a convolution whose images have channels that follow
// each other, without columns: a product of the output's gradient, in panels
// (panels.clh), and of the image in its original layout, filter element by filter element.
// `run` elements of the image that follow each other meet a filter element.

#include "types.clh"
#include "lanes.clh"
#include "panels.clh"
#include "tile.clh"

#ifndef IN_PLACE
#define IN_PLACE 0
#endif

#define CHANNEL(i) a[i]

// Positions of the output whose filter element lies inside the image: from .s0 to .s1.
static inline int2 inside(int size, int out_size, int stride, int first) {
  return (int2)(first >= 0 ? 0 : (-first + stride - 1) / stride,
                first >= size ? 0 : min(out_size, (size - 1 - first) / stride + 1));
}

// One work-item: ROWS output channels by COLUMNS elements at one filter element.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void direct_weight_cpu(CONST_TENSOR(compute_t, grad), const index_t grad_row_stride,
                       const index_t grad_batch_stride, const index_t grad_stride,
                       CONST_TENSOR(compute_t, image),
                       TENSOR(compute_t, weight), const int rows, const int run,
                       const int images, const int4 image_size, const int4 out_size,
                       const int4 kernel_size, const int4 stride, const int4 padding,
                       const int4 dilation, const index_t batch_stride,
                       const index_t d_stride, const index_t h_stride,
                       const index_t w_stride, const int channels,
                       const index_t row_stride, const index_t channel_stride,
                       const index_t element_stride, const int adds) {
  const int own_row = get_global_id(0) * ROWS;
  // The last tile of rows in their original layout begins in its neighbour.
  const int first_row = IN_PLACE ? min(own_row, rows - ROWS) : own_row;
  const int column_tiles = (run + COLUMNS - 1) / COLUMNS;
  const int own_column = get_global_id(1) % column_tiles * COLUMNS;
  const int element = get_global_id(1) / column_tiles;
  // Full vectors are read: the last tile begins in its neighbour.
  const int first_column = max(0, min(own_column, run - COLUMNS));
  const int4 at = (int4)(element / (kernel_size.s1 * kernel_size.s2),
                         element / kernel_size.s2 % kernel_size.s1, element % kernel_size.s2, 0) *
                      dilation - padding;
  const int2 ds = inside(image_size.s0, out_size.s0, stride.s0, at.s0);
  const int2 hs = inside(image_size.s1, out_size.s1, stride.s1, at.s1);
  const int2 ws = inside(image_size.s2, out_size.s2, stride.s2, at.s2);
  const index_t step = stride.s2 * w_stride;
  const int offset_of_sums = OFFSET_OF_SUMS(rows);

  VECTOR totals[ROWS][VECTORS];
  VECTOR sums[ROWS][VECTORS];
  FOR_EACH_VECTOR(i, j) totals[i][j] = sums[i][j] = 0;
  int summed = 0;
  for (int n = 0; n < images; ++n) {
    for (int d = ds.s0; d < ds.s1; ++d) {
      for (int h = hs.s0; h < hs.s1; ++h) {
        const global compute_t *row_grad =
            POINTER(grad) + first_row * grad_row_stride + n * grad_batch_stride +
            ((d * out_size.s1 + h) * out_size.s2 + ws.s0) * grad_stride;
        const global compute_t *row_image =
            POINTER(image) + n * batch_stride + (d * stride.s0 + at.s0) * d_stride +
            (h * stride.s1 + at.s1) * h_stride + (ws.s0 * stride.s2 + at.s2) * w_stride +
            first_column;
        FOR_EACH_PART(part) {
          VECTOR own[ROWS_AT_ONCE][VECTORS];
          LOAD_PART(own, part, sums, offset_of_sums)
          const global compute_t *a = row_grad;
          const global compute_t *b = row_image;
          for (int w = ws.s0; w < ws.s1; ++w) {
            ADD_OUTER_PRODUCT(own, part, CHANNEL, b)
            a += grad_stride;
            b += step;
          }
          STORE_PART(own, part, sums, offset_of_sums)
        }
        summed += ws.s1 - ws.s0;
        if (summed >= SUM_BLOCK) {
          summed = 0;
          FOR_EACH_VECTOR(i, j) {
            totals[i][j] += sums[i][j];
            sums[i][j] = 0;
          }
        }
      }
    }
  }

  const int last_column = min(run, own_column + COLUMNS);
  for (int i = own_row - first_row; i < min(ROWS, rows - first_row); ++i) {
    compute_t line[COLUMNS];
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
      vstore16(totals[i][j] + sums[i][j], j, line);
    }
    for (int column = own_column; column < last_column; ++column) {
      // Filter elements of a row that follow each other are one run.
      global compute_t *p = POINTER(weight) + (first_row + i) * row_stride +
                            (element * (run / channels) + column / channels) * element_stride +
                            column % channels * channel_stride;
      const compute_t value = line[column - first_column];
      *p = adds ? *p + value : value;
    }
  }
}
