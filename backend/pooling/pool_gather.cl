// Gradients of max and average pooling on CPUs, of images of at least LANES channels,
// innermost in all tensors, whose pixels are evenly spaced. A work-item makes some lines of an
// image with all their channels, as memory without gaps is what prefetchers like: it adds up
// what the windows around a pixel hand to it, in their order, and writes each pixel once.

#include "types.clh"
#include "window.clh"
#include "average.clh"
#include "positions.clh"

// Neighbouring pixels, on each axis of a plane, that are made together: all of them
// take part in each load of a window.
#define TILE 2

typedef struct {
  int batch;
  int lines;       // of tiles in a plane
  int first_line;  // of tiles
  int end_line;
  index_t step;    // from a pixel to the next
} band_t;

inline band_t band_of(const geometry_t *g) {
  band_t band;
  const index_t block = (index_t)get_global_id(0);
  const int part = (int)(block % g->parts);
  band.batch = (int)(block / g->parts);
  band.lines = (g->image[1] + TILE - 1) / TILE;
  const long all = (long)g->image[0] * band.lines;
  band.first_line = (int)(all * part / g->parts);
  band.end_line = (int)(all * (part + 1) / g->parts);
  band.step = pixel_step(g);
  return band;
}

#define LOAD_VECTOR(p) CONCAT(load_lanes_, DTYPE)(p)

// The last vector of a pixel makes some channels of the one before again rather than
// fewer.
#define FOR_EACH_VECTOR(c)                                          \
  for (int next_##c = 0, c; c = min(next_##c, g->channels - LANES), \
           next_##c < g->channels;                                  \
       next_##c += LANES)

#define OUTSIDE (-1)  // the image
#define FOR_EACH_OF(i, count) _Pragma("unroll") for (int i = 0; i < count; ++i)
#define FOR_EACH_PIXEL(i, j) FOR_EACH_OF(i, TILE) FOR_EACH_OF(j, TILE)

// Indices are the caller's: one of the image outside its window adds to nothing, as on a
// GPU, or to a neighbour of that window.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void max_pool_backward_gather(
    MAX_POOL_BACKWARD_PARAMETERS) {
  const geometry_t *g = &geometry;
  const band_t band = band_of(g);
  global storage_t *image = POINTER(grad_input) + band.batch * g->image_strides[0];
  const global long *chosen = POINTER(indices) + band.batch * g->indices_strides[0];
  const global storage_t *grads =
      POINTER(grad_output) + band.batch * g->pooled_strides[0];
  const index_t step = band.step, row = g->image[2] * step;
  where_t outside = 0;
  for (int line = band.first_line; line < band.end_line; ++line) {
    const int z = line / band.lines;
    const int y = line % band.lines * TILE;
    const int last_y = min(y + TILE, g->image[1]) - 1;
    const int d_begin = covering_begin(g, 0, z), d_end = covering_end(g, 0, z);
    const int h_begin = covering_begin(g, 1, y), h_end = covering_end(g, 1, last_y);
    for (int x = 0; x < g->image[2]; x += TILE) {
      const int last_x = min(x + TILE, g->image[2]) - 1;
      const int w_begin = covering_begin(g, 2, x), w_end = covering_end(g, 2, last_x);
      const index_t here = plane_position(g, z, y, x);
      global storage_t *pixels = image + here * step;
      index_t positions[TILE][TILE];
      FOR_EACH_PIXEL(i, j)
        positions[i][j] =
            y + i <= last_y && x + j <= last_x ? here + i * g->image[2] + j : OUTSIDE;
      FOR_EACH_VECTOR(c) {
        lanes_t sums[TILE][TILE];
        FOR_EACH_PIXEL(i, j) sums[i][j] = 0;
        for (int d = d_begin; d < d_end; ++d)
          for (int h = h_begin; h < h_end; ++h)
            for (int w = w_begin; w < w_end; ++w) {
              const where_t where = NARROW_LANES(
                  vload16(0, chosen + pixel_offset(g->indices_strides, d, h, w) + c));
              const lanes_t grad =
                  LOAD_VECTOR(grads + pixel_offset(g->pooled_strides, d, h, w) + c);
              outside |= outside_plane(g, where);
              FOR_EACH_PIXEL(i, j)
                sums[i][j] +=
                    select((lanes_t)0, grad, where == (where_t)positions[i][j]);
            }
        FOR_EACH_PIXEL(i, j)
          if (positions[i][j] != OUTSIDE) {
            global storage_t *pixel = pixels + i * row + j * step + c;
            store_full_lanes_nt(pixel, sums[i][j]);
          }
      }
    }
  }
  report_positions(g, outside, chosen, g->channels, record, op);
}

// At most over a pixel, or geometry.h chooses pool_scatter.cl.
#define WINDOWS 9

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void avg_pool_backward_gather(
    AVG_POOL_BACKWARD_PARAMETERS) {
  const geometry_t *g = &geometry;
  const band_t band = band_of(g);
  global storage_t *image = POINTER(grad_input) + band.batch * g->image_strides[0];
  const global storage_t *grads =
      POINTER(grad_output) + band.batch * g->pooled_strides[0];
  for (int line = band.first_line * TILE; line < band.end_line * TILE; ++line) {
    const int z = line / (band.lines * TILE);
    const int y = line % (band.lines * TILE);
    if (y >= g->image[1]) continue;
    const int d_begin = covering_begin(g, 0, z), d_end = covering_end(g, 0, z);
    const int h_begin = covering_begin(g, 1, y), h_end = covering_end(g, 1, y);
    for (int x = 0; x < g->image[2];) {
      // The same windows cover the pixels [x, end).
      const int w_begin = covering_begin(g, 2, x), w_end = covering_end(g, 2, x);
      int end = g->image[2];
      if (w_begin < w_end) end = min(end, window_end(g, 2, w_begin));
      if (w_end < g->pooled[2]) end = min(end, window_begin(g, 2, w_end));
      index_t at[WINDOWS];
      compute_t divisors[WINDOWS];
      int windows = 0;
      for (int d = d_begin; d < d_end; ++d)
        for (int h = h_begin; h < h_end; ++h) {
          const compute_t counted_plane =
              (compute_t)counted(g, 0, d) * (compute_t)counted(g, 1, h);
          for (int w = w_begin; w < w_end; ++w) {
            at[windows] = pixel_offset(g->pooled_strides, d, h, w);
            divisors[windows] = divisor_override
                                    ? (compute_t)divisor_override
                                    : counted_plane * (compute_t)counted(g, 2, w);
            ++windows;
          }
        }
      for (; x < end; ++x) {
        global storage_t *pixel = image + plane_position(g, z, y, x) * band.step;
        FOR_EACH_VECTOR(c) {
          lanes_t sum = 0;
          for (int i = 0; i < windows; ++i)
            sum += LOAD_VECTOR(grads + at[i] + c) / divisors[i];
          store_full_lanes_nt(pixel + c, sum);
        }
      }
    }
  }
}
