// Convolution as a matrix product: the columns of an image, packed straight
// into the right operand's panels (panels.clh).
//
// A pixel is an output position (image, od, oh, ow); a filter element is (channel, kd, kh,
// kw). Both are places: an offset into the image and a position in it; an
// element of the columns lies at the sum of a pixel's and a filter element's place, and is
// zero where that falls outside. Two-dimensional images have a depth of one.

#include "types.clh"
#include "lanes.clh"
#include "transpose_vectors.clh"
#include "panels.clh"
#include "image_lines.clh"

typedef struct {
  index_t offset;
  int d;
  int h;
  int w;
} place_t;

#define GEOMETRY                                                         \
  const int4 input_size, const int4 output_size, const int4 kernel_size, \
      const int4 stride, const int4 padding, const int4 dilation

static inline place_t pixel_place(int i, int4 output_size, int4 stride, int4 padding,
                                  index_t batch_stride, index_t d_stride,
                                  index_t h_stride, index_t w_stride) {
  const int ow = i % output_size.s2;
  i /= output_size.s2;
  const int oh = i % output_size.s1;
  i /= output_size.s1;
  const int od = i % output_size.s0;
  const int image = i / output_size.s0;
  place_t place;
  place.d = od * stride.s0 - padding.s0;
  place.h = oh * stride.s1 - padding.s1;
  place.w = ow * stride.s2 - padding.s2;
  place.offset = image * batch_stride + place.d * d_stride + place.h * h_stride +
                 place.w * w_stride;
  return place;
}

static inline place_t element_place(int i, int4 kernel_size, int4 dilation,
                                index_t channel_stride, index_t d_stride,
                                index_t h_stride, index_t w_stride) {
  place_t place;
  place.w = i % kernel_size.s2 * dilation.s2;
  i /= kernel_size.s2;
  place.h = i % kernel_size.s1 * dilation.s1;
  i /= kernel_size.s1;
  place.d = i % kernel_size.s0 * dilation.s0;
  place.offset = (i / kernel_size.s0) * channel_stride + place.d * d_stride +
                 place.h * h_stride + place.w * w_stride;
  return place;
}

#define PIXEL(i)                                                                 \
  pixel_place(i, output_size, stride, padding, batch_stride, d_stride, h_stride, \
              w_stride)
#define ELEMENT(i) \
  element_place(i, kernel_size, dilation, channel_stride, d_stride, h_stride, w_stride)

#ifndef ROWS_ARE_PIXELS
#define ROWS_ARE_PIXELS 1  // else rows are filter elements and the depth runs over pixels
#endif
#if ROWS_ARE_PIXELS
#define ROW_PLACE PIXEL
#define DEPTH_PLACE ELEMENT
#else
#define ROW_PLACE ELEMENT
#define DEPTH_PLACE PIXEL
#endif

#define COLUMN_PARAMETERS                                                         \
  CONST_TENSOR(storage_t, input), TENSOR(compute_t, panels), const int rows,      \
      const int depth, GEOMETRY, const index_t batch_stride,                      \
      const index_t channel_stride, const index_t d_stride,                       \
      const index_t h_stride, const index_t w_stride, const index_t group_stride, \
      const index_t extent

static inline int is_inside(int d, int h, int w, int4 size) {
  return (uint)d < (uint)size.s0 && (uint)h < (uint)size.s1 && (uint)w < (uint)size.s2;
}

#ifndef IS_GPU
#define PANEL_BASE                                                              \
  const int panel = get_global_id(0);                                           \
  const int begin = get_global_id(1) * DEPTH_BLOCK;                             \
  const int end = min(depth, begin + DEPTH_BLOCK);                              \
  const size_t group = get_global_id(2);                                        \
  const global storage_t *in = POINTER(input) + group * group_stride;           \
  const index_t in_extent = extent - (index_t)(group * group_stride);           \
  const int first = panel * WIDTH;                                              \
  global compute_t *out =                                                       \
      POINTER(panels) + panel_offset(group, rows, depth, first, begin);         \
  const int width = min(WIDTH, rows - first);

// Up to LANES pixels of an output row, from `pixel` on, at a filter element.
static inline lanes_t load_pixels(const global storage_t *in, place_t pixel, place_t element,
                                  int4 input_size, int step, index_t w_stride,
                                  index_t extent) {
  const int w = pixel.w + element.w;
  if ((uint)(pixel.d + element.d) >= (uint)input_size.s0 ||
      (uint)(pixel.h + element.h) >= (uint)input_size.s1) {
    return 0;
  }
  return load_columns_apart(in, pixel.offset + element.offset - w * w_stride, w, step,
                            input_size.s2, w_stride, extent);
}

#if ROWS_ARE_PIXELS
// One work-item: a panel's share of DEPTH_BLOCK filter elements, for one group. Pixels of
// an output row are a run: their vectors overlap, the later one counts.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_columns_cpu(COLUMN_PARAMETERS) {
  PANEL_BASE
  place_t runs[WIDTH];
  int lengths[WIDTH];
  int run_count = 0;
  for (int l = 0; l < width;) {
    const int length =
        min(min(LANES, width - l), output_size.s2 - (first + l) % output_size.s2);
    runs[run_count] = PIXEL(first + l);
    lengths[run_count++] = length;
    l += length;
  }
  compute_t line[WIDTH + LANES];
  for (int k = begin; k < end; ++k) {
    const place_t element = ELEMENT(k);
    int l = 0;
    for (int run = 0; run < run_count; ++run) {
      vstore16(load_pixels(in, runs[run], element, input_size, stride.s2, w_stride, in_extent),
               0, line + l);
      l += lengths[run];
    }
    for (; l < WIDTH; ++l) {
      line[l] = 0;
    }
    for (l = 0; l < WIDTH; ++l) {
      out[l] = line[l];
    }
    out += WIDTH;
  }
}
#else
// One work-item: a panel's share of DEPTH_BLOCK pixels, for one group. Pixels
// of an output row are read by vectors, one a filter element, and transposed.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_columns_cpu(COLUMN_PARAMETERS) {
  PANEL_BASE
  place_t elements[WIDTH];
  for (int l = 0; l < WIDTH; ++l) {
    elements[l] = ELEMENT(first + min(l, width - 1));
  }
  for (int k = begin; k < end;) {
    const int run = min(min(LANES, end - k), output_size.s2 - k % output_size.s2);
    const place_t pixel = PIXEL(k);
    for (int first_of_group = 0; first_of_group < WIDTH; first_of_group += LANES) {
      lanes_t lines[LANES];
      for (int l = 0; l < LANES; ++l) {
        lines[l] = first_of_group + l < width
                       ? load_pixels(in, pixel, elements[first_of_group + l], input_size,
                                     stride.s2, w_stride, in_extent)
                       : 0;
      }
      transpose(lines);
      for (int i = 0; i < run; ++i) {
        vstore16(lines[i], 0, out + i * WIDTH + first_of_group);
      }
    }
    k += run;
    out += run * WIDTH;
  }
}
#endif

#else
// One work-item: one element of a panel.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void pack_columns_gpu(COLUMN_PARAMETERS) {
  const int lane = get_global_id(0) % WIDTH;
  const int k = get_global_id(0) / WIDTH;
  if (k >= depth) return;
  const int panel = get_global_id(1);
  const size_t group = get_global_id(2);
  const int row = panel * WIDTH + lane;
  compute_t value = 0;
  if (row < rows) {
    const place_t a = ROW_PLACE(row);
    const place_t b = DEPTH_PLACE(k);
    if (is_inside(a.d + b.d, a.h + b.h, a.w + b.w, input_size)) {
      value = LOAD(POINTER(input) + group * group_stride, a.offset + b.offset);
    }
  }
  POINTER(panels)[panel_offset(group, rows, depth, row, k)] = value;
}
#endif
