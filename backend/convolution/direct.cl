// Convolution of an image whose channels follow each other in memory: a matrix
// product whose left operand is the image in its original layout, a pixel a row. Its right
// operand is the weight, in panels (panels.clh) whose depth runs over filter elements and
// within a filter element over `run` elements of the image that follow each other.
//
// Output pixel o meets filter element t at pixel o * step + origin + t * dilation of the
// image; a data gradient of stride s is s * s such convolutions.

#include "types.clh"
#include "lanes.clh"
#include "transpose_vectors.clh"
#include "panels.clh"
#include "tile.clh"

#define PIXEL_CHANNEL(i) pixel[i][l]

#define STRIDES(name)                                               \
  const index_t name##_batch_stride, const index_t name##_d_stride, \
      const index_t name##_h_stride, const index_t name##_w_stride

// One work-item: the tiles of ROWS pixels by COLUMNS output channels from
// get_global_id(0) * tiles_at_once on. They come by
// `row_tiles_at_once` rows of tiles; in one, those of the same channels follow
// each other.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void direct_cpu(CONST_TENSOR(compute_t, image), CONST_TENSOR(compute_t, zeros),
                CONST_TENSOR(compute_t, panels), CONST_TENSOR(compute_t, bias),
                TENSOR(compute_t, out), const int rows, const int columns, const int run,
                const int4 image_size, const int4 out_size, const int4 filter,
                const int4 step, const int4 origin, const int4 dilation, STRIDES(image),
                STRIDES(out), const index_t out_channel_stride, const int panel_elements,
                const int first_element, const int4 element_step, const int has_bias,
                const index_t bias_stride, const int tiles_at_once,
                const int row_tiles_at_once) {
  const int row_tiles = (rows + ROWS - 1) / ROWS;
  const int column_tiles = (columns + COLUMNS - 1) / COLUMNS;
  const int offset_of_sums = OFFSET_OF_SUMS(rows);
  const int last_tile =
      min(row_tiles * column_tiles, ((int)get_global_id(0) + 1) * tiles_at_once);

  for (int tile = get_global_id(0) * tiles_at_once; tile < last_tile; ++tile) {
    const int first_row_tile =
        tile / (row_tiles_at_once * column_tiles) * row_tiles_at_once;
    const int of_rows = tile - first_row_tile * column_tiles;
    const int rows_at_once = min(row_tiles_at_once, row_tiles - first_row_tile);
    const int column_tile = of_rows / rows_at_once;
    const int row_tile = first_row_tile + of_rows % rows_at_once;
    // The last tile overlaps its neighbour.
    const int first_row = min(row_tile * ROWS, rows - ROWS);
    const int first_column = column_tile * COLUMNS;
    const global compute_t *panel =
        POINTER(panels) + (size_t)first_column * panel_elements * run;

    int4 places[ROWS];  // of the image
    int4 lowest = INT_MAX;  // of all places
    int4 highest = INT_MIN;
    index_t from[ROWS];
    index_t to[ROWS];
    int4 at;  // of the output
    at.s2 = first_row % out_size.s2;
    at.s1 = first_row / out_size.s2 % out_size.s1;
    at.s0 = first_row / (out_size.s2 * out_size.s1) % out_size.s0;
    at.s3 = first_row / (out_size.s2 * out_size.s1 * out_size.s0);
    for (int i = 0; i < ROWS; ++i) {
      const int4 place = at * step + origin;
      places[i] = place;
      lowest = min(lowest, place);
      highest = max(highest, place);
      from[i] = at.s3 * image_batch_stride + place.s0 * image_d_stride +
                place.s1 * image_h_stride + place.s2 * image_w_stride;
      to[i] = at.s3 * out_batch_stride + at.s0 * out_d_stride + at.s1 * out_h_stride +
              at.s2 * out_w_stride;
      if (++at.s2 == out_size.s2) {
        at.s2 = 0;
        if (++at.s1 == out_size.s1) {
          at.s1 = 0;
          if (++at.s0 == out_size.s0) {
            at.s0 = 0;
            ++at.s3;
          }
        }
      }
    }

    VECTOR totals[ROWS][VECTORS];
    VECTOR sums[ROWS][VECTORS];
    FOR_EACH_VECTOR(i, j) totals[i][j] = sums[i][j] = 0;
    int summed = 0;
    for (int d = 0; d < filter.s0; ++d) {
      for (int h = 0; h < filter.s1; ++h) {
        for (int w = 0; w < filter.s2; ++w) {
          const int4 element = (int4)(d, h, w, 0) * dilation;
          const int4 first = lowest + element;
          const int4 last = highest + element;
          // A filter element of which no pixel is inside adds nothing.
          if (last.s0 < 0 || last.s1 < 0 || last.s2 < 0 || first.s0 >= image_size.s0 ||
              first.s1 >= image_size.s1 || first.s2 >= image_size.s2) {
            continue;
          }
          const global compute_t *pixel[ROWS];
          const index_t offset =
              element.s0 * image_d_stride + element.s1 * image_h_stride + element.s2 * image_w_stride;
#pragma unroll
          for (int i = 0; i < ROWS; ++i) {
            pixel[i] = POINTER(image) + (from[i] + offset);
          }
          if (first.s0 < 0 || first.s1 < 0 || first.s2 < 0 || last.s0 >= image_size.s0 ||
              last.s1 >= image_size.s1 || last.s2 >= image_size.s2) {
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
              const int4 place = places[i] + element;
              if ((uint)place.s0 >= (uint)image_size.s0 ||
                  (uint)place.s1 >= (uint)image_size.s1 ||
                  (uint)place.s2 >= (uint)image_size.s2) {
                pixel[i] = POINTER(zeros);
              }
            }
          }
          const global compute_t *b =
              panel + (size_t)(first_element + d * element_step.s0 + h * element_step.s1 +
                               w * element_step.s2) * run * COLUMNS;
          for (int c = 0; c < run;) {
            const int end = min(run, c + SUM_BLOCK - summed);
            summed += end - c;
            FOR_EACH_PART(part) {
              VECTOR own[ROWS_AT_ONCE][VECTORS];
              LOAD_PART(own, part, sums, offset_of_sums)
              const global compute_t *line_at = b;
              for (int l = c; l < end; ++l) {
                ADD_OUTER_PRODUCT(own, part, PIXEL_CHANNEL, line_at)
                line_at += COLUMNS;
              }
              STORE_PART(own, part, sums, offset_of_sums)
            }
            b += (end - c) * COLUMNS;
            c = end;
            if (summed == SUM_BLOCK) {
              summed = 0;
              FOR_EACH_VECTOR(i, j) {
                totals[i][j] += sums[i][j];
                sums[i][j] = 0;
              }
            }
          }
        }
      }
    }

#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
      const int column = first_column + j * LANES;
      const int width = min(LANES, columns - column);
      lanes_t added = 0;
      if (has_bias && width > 0) {
        added = load_lanes(POINTER(bias), column * bias_stride, bias_stride, width);
      }
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        totals[i][j] += sums[i][j] + added;
      }
    }
    const int width = min(COLUMNS, columns - first_column);
    if (out_channel_stride == 1) {
      if (width == COLUMNS) {
        FOR_EACH_VECTOR(i, j) {
          store_lanes_nt(POINTER(out), to[i] + first_column + j * LANES, 1, LANES,
                       totals[i][j]);
        }
        continue;
      }
      for (int i = 0; i < ROWS; ++i) {
        for (int j = 0; j * LANES < width; ++j) {
          store_lanes(POINTER(out), to[i] + first_column + j * LANES, 1,
                      width - j * LANES, totals[i][j]);
        }
      }
      continue;
    }
    // Pixels follow each other, not channels.
    const int is_dense = to[ROWS - 1] - to[0] == ROWS - 1;
    for (int j = 0; j * LANES < width; ++j) {
      lanes_t transposed[LANES];
#pragma unroll
      for (int i = 0; i < LANES; ++i) {
        transposed[i] = i < ROWS ? totals[i % ROWS][j] : 0;
      }
      transpose(transposed);
      for (int l = 0; l < min(LANES, width - j * LANES); ++l) {
        global compute_t *line =
            POINTER(out) + (first_column + j * LANES + l) * out_channel_stride;
        if (is_dense) {
#if ROWS == 16
          vstore16(transposed[l], 0, line + to[0]);
#else
          vstore8(transposed[l].lo, 0, line + to[0]);
#endif
        } else {
          compute_t lane[LANES];
          vstore16(transposed[l], 0, lane);
          for (int i = 0; i < ROWS; ++i) {
            line[to[i]] = lane[i];
          }
        }
      }
    }
  }
}
