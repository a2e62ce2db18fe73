// Gradients of max and average pooling on CPUs, for float and double images
// whose pixels are evenly spaced. A work-item makes a whole plane or, with
// CHANNELS_LAST, some channels of an image: it adds each window's gradient to
// the elements it came from, one window after the other, so the sum has a fixed
// order, and what it adds to stays in the cache.

#include "types.clh"
#include "window.clh"
#include "average.clh"
#include "positions.clh"

// Neighbouring windows that spread their gradients together.
#define TILE 64

#if CHANNELS_LAST

typedef struct {
  int batch;
  int channel;
  int channels;
  index_t step;     // from a pixel to the next
  index_t pixels;
  index_t cleared;  // of them
  global storage_t *values;
  const global storage_t *grads;
} image_t;

inline image_t image_of(const geometry_t *g,
                        global storage_t *grad_input,
                        const global storage_t *grad_output) {
  image_t image;
  const index_t block = (index_t)get_global_id(0);
  const int part = (int)(block % g->parts);
  const int blocks = (g->channels + LANES - 1) / LANES;
  image.batch = (int)(block / g->parts);
  image.channel = (int)((long)blocks * part / g->parts) * LANES;
  image.channels =
      min((int)((long)blocks * (part + 1) / g->parts) * LANES, g->channels) -
      image.channel;
  image.step = pixel_step(g);
  image.pixels = (index_t)g->image[0] * g->image[1] * g->image[2];
  image.cleared = 0;
  image.values = grad_input + image.batch * g->image_strides[0] +
                 image.channel * g->image_strides[1];
  image.grads = grad_output + image.batch * g->pooled_strides[0] +
                image.channel * g->pooled_strides[1];
  return image;
}

// Just before the first window that may add to them.
inline void clear_pixels(image_t *image, index_t end) {
  for (; image->cleared < end; ++image->cleared) {
    global storage_t *pixel = image->values + image->cleared * image->step;
    for (int c = 0; c < image->channels; ++c) pixel[c] = 0;
  }
}

// All windows of this and the lines before end before this pixel.
inline index_t reach_of(const geometry_t *g, int depth, int height) {
  const int h = g->image[0] > 1 ? g->image[1] : window_end(g, 1, height);
  return plane_position(g, g->image[0] - 1, h, 0);
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void max_pool_backward_scatter(
    MAX_POOL_BACKWARD_PARAMETERS) {
  const geometry_t *g = &geometry;
  image_t image = image_of(g, POINTER(grad_input), POINTER(grad_output));
  const global long *chosen = POINTER(indices) + image.batch * g->indices_strides[0] +
                              image.channel * g->indices_strides[1];
  for (int d = 0; d < g->pooled[0]; ++d)
    for (int h = 0; h < g->pooled[1]; ++h) {
      clear_pixels(&image, min(image.pixels, reach_of(g, d, h)));
      for (int w = 0; w < g->pooled[2]; ++w) {
        const global storage_t *grad =
            image.grads + pixel_offset(g->pooled_strides, d, h, w);
        const global long *from = chosen + pixel_offset(g->indices_strides, d, h, w);
        for (int c = 0; c < image.channels; ++c) {
          const ulong where = (ulong)from[c * g->indices_strides[1]];
          if (where >= (ulong)image.pixels) {
            report_position(g, (long)where, record, op);
            continue;
          }
          // Indices are the caller's and may lie outside their windows.
          if ((index_t)where >= image.cleared)
            clear_pixels(&image, (index_t)where + 1);
          image.values[where * image.step + c] += grad[c * g->pooled_strides[1]];
        }
      }
    }
  clear_pixels(&image, image.pixels);
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void avg_pool_backward_scatter(
    AVG_POOL_BACKWARD_PARAMETERS) {
  const geometry_t *g = &geometry;
  image_t image = image_of(g, POINTER(grad_input), POINTER(grad_output));
  for (int d = 0; d < g->pooled[0]; ++d)
    for (int h = 0; h < g->pooled[1]; ++h) {
      clear_pixels(&image, min(image.pixels, reach_of(g, d, h)));
      const compute_t counted_plane =
          (compute_t)counted(g, 0, d) * (compute_t)counted(g, 1, h);
      for (int w = 0; w < g->pooled[2]; ++w) {
        const global storage_t *grad =
            image.grads + pixel_offset(g->pooled_strides, d, h, w);
        const compute_t divisor = divisor_override
                                      ? (compute_t)divisor_override
                                      : counted_plane * (compute_t)counted(g, 2, w);
        for (int z = window_begin(g, 0, d); z < window_end(g, 0, d); ++z)
          for (int y = window_begin(g, 1, h); y < window_end(g, 1, h); ++y)
            for (int x = window_begin(g, 2, w); x < window_end(g, 2, w); ++x) {
              global storage_t *pixel =
                  image.values + plane_position(g, z, y, x) * image.step;
              int c = 0;
              for (; c + LANES <= image.channels; c += LANES)
                store_lanes(pixel, c, 1, LANES,
                            load_lanes(pixel, c, 1, LANES) +
                                load_lanes(grad, c * g->pooled_strides[1],
                                           g->pooled_strides[1], LANES) /
                                    divisor);
              for (; c < image.channels; ++c)
                pixel[c] += grad[c * g->pooled_strides[1]] / divisor;
            }
      }
    }
  clear_pixels(&image, image.pixels);
}

#else

inline place_t plane_of(const geometry_t *g, index_t block) {
  place_t place;
  place.batch = (int)(block / g->channels);
  place.channel = (int)(block % g->channels);
  return place;
}

#define LINE_OFFSET(strides) \
  (plane_offset(&place, strides) + pixel_offset(strides, d, h, 0))

inline index_t clear_plane(const geometry_t *g, global storage_t *image) {
  const index_t size = (index_t)g->image[0] * g->image[1] * g->image[2];
  for (index_t i = 0; i < size; ++i) image[i] = 0;
  return size;
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void max_pool_backward_scatter(
    MAX_POOL_BACKWARD_PARAMETERS) {
  const geometry_t *g = &geometry;
  const place_t place = plane_of(g, (index_t)get_global_id(0));
  global storage_t *image = POINTER(grad_input) + plane_offset(&place, g->image_strides);
  const index_t size = clear_plane(g, image);
  for (int d = 0; d < g->pooled[0]; ++d)
    for (int h = 0; h < g->pooled[1]; ++h) {
      const global storage_t *grad =
          POINTER(grad_output) + LINE_OFFSET(g->pooled_strides);
      const global long *chosen = POINTER(indices) + LINE_OFFSET(g->indices_strides);
      for (int w = 0; w < g->pooled[2]; ++w) {
        const ulong where = (ulong)chosen[w * g->indices_strides[4]];
        if (where < (ulong)size) {
          image[where] += grad[w * g->pooled_strides[4]];
        } else {
          report_position(g, (long)where, record, op);
        }
      }
    }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void avg_pool_backward_scatter(
    AVG_POOL_BACKWARD_PARAMETERS) {
  const geometry_t *g = &geometry;
  const place_t place = plane_of(g, (index_t)get_global_id(0));
  global storage_t *image = POINTER(grad_input) + plane_offset(&place, g->image_strides);
  clear_plane(g, image);
  // Long windows are walked by themselves, short ones of a tile together.
  const int by_window = ADAPTIVE || g->kernel_size[2] >= 16 ||
                        g->kernel_size[2] > g->pooled[2];
  for (int d = 0; d < g->pooled[0]; ++d)
    for (int h = 0; h < g->pooled[1]; ++h) {
      const global storage_t *grad =
          POINTER(grad_output) + LINE_OFFSET(g->pooled_strides);
      const compute_t counted_plane =
          (compute_t)counted(g, 0, d) * (compute_t)counted(g, 1, h);
      for (int first = 0; first < g->pooled[2]; first += TILE) {
        const int tile = min(TILE, g->pooled[2] - first);
        compute_t share[TILE];
        for (int t = 0; t < tile; ++t) {
          const compute_t divisor =
              divisor_override ? (compute_t)divisor_override
                               : counted_plane * (compute_t)counted(g, 2, first + t);
          share[t] = grad[(first + t) * g->pooled_strides[4]] / divisor;
        }
        for (int z = window_begin(g, 0, d); z < window_end(g, 0, d); ++z)
          for (int y = window_begin(g, 1, h); y < window_end(g, 1, h); ++y) {
            global storage_t *row = image + pixel_offset(g->image_strides, z, y, 0);
            if (by_window) {
              for (int t = 0; t < tile; ++t) {
                const int end = window_end(g, 2, first + t);
                for (int x = window_begin(g, 2, first + t); x < end; ++x)
                  row[x] += share[t];
              }
              continue;
            }
            const int stride = g->stride[2];
            for (int tap = 0; tap < g->kernel_size[2]; ++tap) {
              // The windows of the tile whose tap lies inside the image.
              const int origin = first * stride + tap - g->padding[2];
              const int begin = origin < 0 ? (stride - 1 - origin) / stride : 0;
              const int last = g->image[2] - 1 - origin;
              const int end = last < 0 ? 0 : min(tile, last / stride + 1);
              if (stride == 1) {
                for (int t = begin; t < end; ++t) row[origin + t] += share[t];
              } else {
                for (int t = begin; t < end; ++t) row[origin + t * stride] += share[t];
              }
            }
          }
      }
    }
}

#endif
