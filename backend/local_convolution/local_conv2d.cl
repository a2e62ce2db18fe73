// Convolution whose weights are not shared between positions, and its
// gradients. Weights are (out channel, channel, kernel row, kernel column, out
// row, out column), so that neighbouring positions are neighbours in memory.
//
// A work-item holds LEFT x RIGHT accumulators over LANES neighbouring columns
// of one row: out channels x images of the output, channels x images of the
// input's gradient, out channels x channels of the weight's. Each step of its
// sum loads LEFT + RIGHT spans of a row straight from the tensors; what padding
// adds is masked, and no patch is ever written. LANES is 16 on cpu-class
// devices and 1 on gpu-class ones, where neighbouring work-items take
// neighbouring columns. Sums run in a fixed order.

#include "types.clh"
#include "lanes.clh"
#include "index.clh"

#ifndef LEFT
#define LEFT 4
#endif
#ifndef RIGHT
#define RIGHT 6
#endif
#ifndef WG_SIZE
#define WG_SIZE 1
#endif


#define LARGEST(a, b) ((a) > (b) ? (a) : (b))

// Two numbers are those of rows and columns.
typedef struct {
  int images;
  int channels;
  int out_channels;
  int in[2];
  int out[2];
  int kernel_size[2];
  int stride[2];
  int padding[2];
  int dilation[2];
} geometry_t;

// Strides of a tensor's dimensions, and how far it reaches.
typedef struct {
  index_t image;
  index_t channel;
  index_t row;
  index_t column;
  index_t extent;
} planes_t;


#if LANES == 1
typedef int mask_t;
#define LANE_NUMBERS 0
#define TO_MASK(condition) (condition)
#define WHOLE_SPAN(p) LOAD(p, 0)
#else
#define LANE_NUMBERS (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define mask_float32 int16
#define mask_float16 int16
#define mask_bfloat16 int16
#define mask_float64 long16
typedef CONCAT(mask_, DTYPE) mask_t;
#define convert_mask_float32(x) (x)
#define convert_mask_float16(x) (x)
#define convert_mask_bfloat16(x) (x)
#define convert_mask_float64(x) convert_long16(x)
#define TO_MASK(condition) CONCAT(convert_mask_, DTYPE)(condition)
#define WHOLE_SPAN(p) CONCAT(load_lanes_, DTYPE)(p)
#endif

// True in lanes whose column first + lane * step is one of `columns`.
inline mask_t inside(int first, int step, int columns) {
  return TO_MASK(LANE_NUMBERS * step + first >= 0 && LANE_NUMBERS * step + first < columns);
}

inline int is_inside(int first, int step, int count, int columns) {
  return first >= 0 && first + (count - 1) * step < columns;
}

// `step` elements apart, beginning at p[at]. What lies outside the tensor's
// `extent` elements is not touched and has any value.
inline lanes_t load_span(const global storage_t *p, index_t at, int step, index_t extent) {
#if LANES == 1
  return at >= 0 && at < extent ? LOAD(p, at) : 0;
#else
  if (at >= 0 && at + LANES * step <= extent) {
    if (step == 1) return WHOLE_SPAN(p + at);
    if (step == 2) {
      const lanes_t low = WHOLE_SPAN(p + at);
      const lanes_t high = WHOLE_SPAN(p + at + LANES);
      lanes_t both;
      both.lo = low.even;
      both.hi = high.even;
      return both;
    }
  }
  compute_t lane[LANES];
  for (int l = 0; l < LANES; ++l) {
    const index_t place = at + l * step;
    lane[l] = place >= 0 && place < extent ? LOAD(p, place) : 0;
  }
  return vload16(0, lane);
#endif
}

// Where a sum's next span lies: `at` of each accumulator, `step` further with
// every step of the sum.
typedef struct {
  const global storage_t *memory;
  index_t at[LARGEST(LEFT, RIGHT)];
  index_t step;
  int lane_step;
  index_t extent;
} operand_t;

inline int is_within(const operand_t *operand, int count, int steps) {
  const index_t last = operand->at[count - 1] + (steps - 1) * operand->step;
  return operand->lane_step == 1 && operand->at[0] >= 0 && last + LANES <= operand->extent;
}

// sums[a][b] += left[a] * right[b] for each step, with zeros where lanes are
// not in `mask`, whatever was loaded: it may be infinite. Only the right
// operand's lanes may be apart. A macro, for PoCL's compiler keeps arrays that
// functions are given in memory.
#define ACCUMULATE(sums, steps, is_left_cut, is_right_cut, mask)                              \
  {                                                                                           \
    index_t from_left = 0, from_right = 0;                                                    \
    if (LANES > 1 && is_within(&left, LEFT, steps) && is_within(&right, RIGHT, steps)) {      \
      STEPS(sums, steps, is_left_cut, is_right_cut, mask,                                     \
            WHOLE_SPAN(left.memory + (left.at[a] + from_left)),                               \
            WHOLE_SPAN(right.memory + (right.at[b] + from_right)))                            \
    } else {                                                                                  \
      STEPS(sums, steps, is_left_cut, is_right_cut, mask,                                     \
            load_span(left.memory, left.at[a] + from_left, 1, left.extent),                   \
            load_span(right.memory, right.at[b] + from_right, right.lane_step, right.extent)) \
    }                                                                                         \
  }
#define STEPS(sums, steps, is_left_cut, is_right_cut, mask, load_left, load_right) \
  for (int step = 0; step < (steps); ++step) {                                     \
    lanes_t l[LEFT], r[RIGHT];                                                     \
    _Pragma("unroll") for (int a = 0; a < LEFT; ++a) l[a] = load_left;             \
    _Pragma("unroll") for (int b = 0; b < RIGHT; ++b) r[b] = load_right;           \
    if (is_left_cut) {                                                             \
      _Pragma("unroll") for (int a = 0; a < LEFT; ++a)                             \
          l[a] = LANES_SELECT((lanes_t)0, l[a], mask);                             \
    }                                                                              \
    if (is_right_cut) {                                                            \
      _Pragma("unroll") for (int b = 0; b < RIGHT; ++b)                            \
          r[b] = LANES_SELECT((lanes_t)0, r[b], mask);                             \
    }                                                                              \
    _Pragma("unroll") for (int a = 0; a < LEFT; ++a)                               \
    _Pragma("unroll") for (int b = 0; b < RIGHT; ++b)                              \
        sums[a][b] = fma(l[a], r[b], sums[a][b]);                                  \
    from_left += left.step;                                                        \
    from_right += right.step;                                                      \
  }

#define FOR_EACH_SUM                               \
  _Pragma("unroll") for (int a = 0; a < LEFT; ++a) \
  _Pragma("unroll") for (int b = 0; b < RIGHT; ++b)

// Tiles of accumulators that wait in memory while a row of filter elements goes through them
// all, so that its weights are read from the nearest cache.
#if LANES == 1
#define TILES_AT_ONCE 1
#else
#define TILES_AT_ONCE 8
#endif

// What a work-item does: a span of lanes, the `left` of LEFT accumulators, and
// `part` of the right extent. Work-items that read the same right operand
// follow each other on cpu-class devices.
#if LANES == 1
#define WORK_ITEM(lefts, parts)         \
  const size_t span = get_global_id(0); \
  const int left_tile = get_global_id(1), part = get_global_id(2);
#else
#define WORK_ITEM(lefts, parts)                      \
  const int left_tile = get_global_id(0) % lefts;    \
  const int part = get_global_id(0) / lefts % parts; \
  const size_t span = get_global_id(0) / lefts / parts;
#endif
#define TILES(extent, tile) (((extent) + (tile) - 1) / (tile))

// Left: out channels. Right: images, of which a work-item goes through `images`.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void local_conv2d_forward(
    TENSOR(storage_t, out), const planes_t out, CONST_TENSOR(storage_t, input),
    const planes_t input, CONST_TENSOR(storage_t, weight), CONST_TENSOR(storage_t, bias),
    const index_t bias_channel, const index_t bias_row, const index_t bias_column,
    const int has_bias, const geometry_t g, const int images) {
  WORK_ITEM(TILES(g.out_channels, LEFT), TILES(g.images, images))
  const int spans = TILES(g.out[1], LANES);
  if (span >= (size_t)spans * g.out[0]) return;
  const int row = span / spans;
  const int first = (span - (size_t)row * spans) * LANES;
  const int count = min(LANES, g.out[1] - first);
  const int end = min(g.images, (part + 1) * images);
  const int filter_size = g.kernel_size[0] * g.kernel_size[1];
  const index_t positions = (index_t)g.out[0] * g.out[1];

  operand_t left, right;
  left.memory = POINTER(weight);
  left.step = filter_size * positions;
  left.lane_step = 1;
  left.extent = left.step * g.channels * g.out_channels;
  right.memory = POINTER(input);
  right.step = input.channel;
  right.lane_step = g.stride[1] * input.column;
  right.extent = input.extent;
  lanes_t kept[TILES_AT_ONCE][LEFT][RIGHT];
  for (int block = part * images; block < end; block += TILES_AT_ONCE * RIGHT) {
    const int tiles = min(TILES_AT_ONCE, TILES(end - block, RIGHT));
    for (int tile = 0; tile < tiles; ++tile) FOR_EACH_SUM kept[tile][a][b] = 0;
    for (int i = 0; i < g.kernel_size[0]; ++i) {
      const int in_row = row * g.stride[0] + i * g.dilation[0] - g.padding[0];
      if (in_row < 0 || in_row >= g.in[0]) continue;
      for (int tile = 0; tile < tiles; ++tile) {
        lanes_t sums[LEFT][RIGHT];
        FOR_EACH_SUM sums[a][b] = kept[tile][a][b];
        for (int j = 0; j < g.kernel_size[1]; ++j) {
          const int column = first * g.stride[1] + j * g.dilation[1] - g.padding[1];
#pragma unroll
          for (int a = 0; a < LEFT; ++a) {
            const int channel = min(left_tile * LEFT + a, g.out_channels - 1);
            left.at[a] = (channel * g.channels * filter_size + i * g.kernel_size[1] + j) * positions +
                         row * g.out[1] + first;
          }
#pragma unroll
          for (int b = 0; b < RIGHT; ++b) {
            right.at[b] = min(block + tile * RIGHT + b, end - 1) * input.image +
                          in_row * input.row + column * input.column;
          }
          const int is_cut = !is_inside(column, g.stride[1], count, g.in[1]);
          const mask_t mask = inside(column, g.stride[1], g.in[1]);
          ACCUMULATE(sums, g.channels, 0, is_cut, mask)
        }
        FOR_EACH_SUM kept[tile][a][b] = sums[a][b];
      }
    }
#pragma unroll
    for (int a = 0; a < LEFT; ++a) {
      const int channel = left_tile * LEFT + a;
      if (channel >= g.out_channels) continue;
      const index_t place = channel * out.channel + row * out.row + first * out.column;
      lanes_t start = 0;
      if (has_bias) {
        start = load_lanes(POINTER(bias),
                           channel * bias_channel + row * bias_row + first * bias_column,
                           bias_column, count);
      }
      for (int image = block; image < min(end, block + tiles * RIGHT); ++image) {
        store_lanes(POINTER(out), image * out.image + place, out.column, count,
                    kept[(image - block) / RIGHT][a][(image - block) % RIGHT] + start);
      }
    }
  }
}

// Left: channels. Right: images. Lanes are a stride apart in the input, so that
// they meet neighbouring columns of the output. Such phases of a row are the
// fastest, for the sake of devices whose work-items are the lanes.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void local_conv2d_input_gradient(
    TENSOR(storage_t, out), const planes_t out, CONST_TENSOR(storage_t, gradient),
    const planes_t gradient, CONST_TENSOR(storage_t, weight), const geometry_t g,
    const int images) {
  WORK_ITEM(TILES(g.channels, LEFT), TILES(g.images, images))
  const int phases = min(g.stride[1], g.in[1]);
  const int spans = phases * TILES(TILES(g.in[1], phases), LANES);
  if (span >= (size_t)spans * g.in[0]) return;
  const int row = span / spans;
  const int row_span = span - (size_t)row * spans;
  const int first = row_span % phases + row_span / phases * LANES * g.stride[1];
  if (first >= g.in[1]) return;
  const int count = min(LANES, TILES(g.in[1] - first, g.stride[1]));
  const int end = min(g.images, (part + 1) * images);
  const int filter_size = g.kernel_size[0] * g.kernel_size[1];
  const index_t positions = (index_t)g.out[0] * g.out[1];

  operand_t left, right;
  left.memory = POINTER(weight);
  left.step = filter_size * positions * g.channels;
  left.lane_step = 1;
  left.extent = left.step * g.out_channels;
  right.memory = POINTER(gradient);
  right.step = gradient.channel;
  right.lane_step = gradient.column;
  right.extent = gradient.extent;
  lanes_t kept[TILES_AT_ONCE][LEFT][RIGHT];
  for (int block = part * images; block < end; block += TILES_AT_ONCE * RIGHT) {
    const int tiles = min(TILES_AT_ONCE, TILES(end - block, RIGHT));
    for (int tile = 0; tile < tiles; ++tile) FOR_EACH_SUM kept[tile][a][b] = 0;
    for (int i = 0; i < g.kernel_size[0]; ++i) {
      const int down = row + g.padding[0] - i * g.dilation[0];
      const int met_row = down / g.stride[0];
      if (down < 0 || down % g.stride[0] != 0 || met_row >= g.out[0]) continue;
      for (int tile = 0; tile < tiles; ++tile) {
        lanes_t sums[LEFT][RIGHT];
        FOR_EACH_SUM sums[a][b] = kept[tile][a][b];
        for (int j = 0; j < g.kernel_size[1]; ++j) {
          const int across = first + g.padding[1] - j * g.dilation[1];
          if (across % g.stride[1] != 0) continue;
          const int column = across / g.stride[1];
#pragma unroll
          for (int a = 0; a < LEFT; ++a) {
            const int channel = min(left_tile * LEFT + a, g.channels - 1);
            left.at[a] = (channel * filter_size + i * g.kernel_size[1] + j) * positions +
                         met_row * g.out[1] + column;
          }
#pragma unroll
          for (int b = 0; b < RIGHT; ++b) {
            right.at[b] = min(block + tile * RIGHT + b, end - 1) * gradient.image +
                          met_row * gradient.row + column * gradient.column;
          }
          const int is_cut = !is_inside(column, 1, count, g.out[1]);
          const mask_t mask = inside(column, 1, g.out[1]);
          ACCUMULATE(sums, g.out_channels, is_cut, is_cut, mask)
        }
        FOR_EACH_SUM kept[tile][a][b] = sums[a][b];
      }
    }
#pragma unroll
    for (int a = 0; a < LEFT; ++a) {
      const int channel = left_tile * LEFT + a;
      if (channel >= g.channels) continue;
      const index_t place = channel * out.channel + row * out.row + first * out.column;
      for (int image = block; image < min(end, block + tiles * RIGHT); ++image) {
        store_lanes(POINTER(out), image * out.image + place, out.column * g.stride[1], count,
                    kept[(image - block) / RIGHT][a][(image - block) % RIGHT]);
      }
    }
  }
}

// Left: out channels. Right: channels, of which a work-item takes RIGHT.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void local_conv2d_weight_gradient(
    TENSOR(storage_t, out), CONST_TENSOR(storage_t, gradient), const planes_t gradient,
    CONST_TENSOR(storage_t, input), const planes_t input, const geometry_t g) {
  WORK_ITEM(TILES(g.out_channels, LEFT), TILES(g.channels, RIGHT))
  const int spans = TILES(g.out[1], LANES);
  if (span >= (size_t)spans * g.out[0]) return;
  const int row = span / spans;
  const int first = (span - (size_t)row * spans) * LANES;
  const int count = min(LANES, g.out[1] - first);
  const int filter_size = g.kernel_size[0] * g.kernel_size[1];
  const index_t positions = (index_t)g.out[0] * g.out[1];

  operand_t left, right;
  left.memory = POINTER(gradient);
  left.step = gradient.image;
  left.lane_step = 1;
  left.extent = gradient.extent;
#pragma unroll
  for (int a = 0; a < LEFT; ++a) {
    left.at[a] = min(left_tile * LEFT + a, g.out_channels - 1) * gradient.channel +
                 row * gradient.row + first * gradient.column;
  }
  right.memory = POINTER(input);
  right.step = input.image;
  right.lane_step = g.stride[1] * input.column;
  right.extent = input.extent;
  for (int i = 0; i < g.kernel_size[0]; ++i) {
    const int in_row = row * g.stride[0] + i * g.dilation[0] - g.padding[0];
    for (int j = 0; j < g.kernel_size[1]; ++j) {
      const int column = first * g.stride[1] + j * g.dilation[1] - g.padding[1];
#pragma unroll
      for (int b = 0; b < RIGHT; ++b) {
        right.at[b] = min(part * RIGHT + b, g.channels - 1) * input.channel +
                      in_row * input.row + column * input.column;
      }
      lanes_t sums[LEFT][RIGHT];
      FOR_EACH_SUM sums[a][b] = 0;
      const int is_cut = !is_inside(column, g.stride[1], count, g.in[1]);
      const mask_t mask = inside(column, g.stride[1], g.in[1]);
      const int steps = in_row >= 0 && in_row < g.in[0] ? g.images : 0;
      ACCUMULATE(sums, steps, 0, is_cut, mask)
#pragma unroll
      for (int a = 0; a < LEFT; ++a) {
#pragma unroll
        for (int b = 0; b < RIGHT; ++b) {
          const int channel = part * RIGHT + b;
          const int out_channel = left_tile * LEFT + a;
          if (out_channel < g.out_channels && channel < g.channels) {
            const index_t element =
                ((index_t)out_channel * g.channels + channel) * filter_size + i * g.kernel_size[1] + j;
            store_lanes(POINTER(out), element * positions + row * g.out[1] + first, 1, count,
                        sums[a][b]);
          }
        }
      }
    }
  }
}
