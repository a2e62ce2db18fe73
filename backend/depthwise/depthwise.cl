// Depthwise convolution in two dimensions: output channel c reads one input
// channel only.
//
// Forward and its adjoint are one sum. With `source` spread by `up` (zeros
// between its elements), an output at position i is the sum over filter elements k of
//   weight[k] * spread(i * down - padding + k * dilation).
// Forward: up = 1, down = stride. Adjoint: up = stride, down = 1, the weight's
// filter elements reversed (through its strides). Output channel c sums `sources` source
// channels, starting with c / depth_multiplier * sources.
//
// cpu-class: depthwise_rows has its LANES along a row, for images whose rows
// are dense, and reads padded copies of rows, which it keeps while filter elements reach
// them; depthwise_channels has them along the channels, for what channels_last
// images depthwise_row_tiles.cl leaves.
// gpu-class: depthwise_tiles, from tiles of the source in local memory, or, where
// these are too large, depthwise_each, one output a work-item. Nothing is reduced
// across work-items but in the weight's gradient, where each writes partial sums of
// its own.

#include "types.clh"
#include "lanes.clh"
#include "depthwise.clh"
#include "epilogue.clh"

// Pairs are (h, w); strides are (n, c, h, w); the weight's are (first element,
// channel, h, w).
#define DEPTHWISE_PARAMETERS                                                   \
  TENSOR(storage_t, out), CONST_TENSOR(storage_t, source),                     \
      CONST_TENSOR(storage_t, weight), CONST_TENSOR(storage_t, bias),          \
      const int channels, const int sources, const int depth_multiplier,       \
      const int2 source_size, const int2 out_size, const int2 kernel_size,     \
      const int2 up, const int2 down, const int2 padding, const int2 dilation, \
      const int4 source_stride, const int4 weight_stride,                      \
      const int4 out_stride, const int bias_stride, const int has_bias

#if LANES > 1

// One work-item: `rows` rows of one channel's output.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_rows(DEPTHWISE_PARAMETERS, const int rows) {
  const int begin = get_global_id(0) * rows;
  const int end = min(out_size.s0, begin + rows);
  const int channel = (int)get_global_id(1) % channels;
  const int n = (int)get_global_id(1) / channels;
  const global storage_t *in = POINTER(source) + (size_t)n * source_stride.s0 +
      (size_t)(channel / depth_multiplier * sources) * source_stride.s1;
  const global storage_t *factors =
      POINTER(weight) + weight_stride.s0 + channel * sources * weight_stride.s1;
  global storage_t *target =
      POINTER(out) + (size_t)n * out_stride.s0 + (size_t)channel * out_stride.s1;
  const lanes_t base = has_bias ? LOAD(POINTER(bias), channel * bias_stride) : 0;
  const int step = down.s1;
  const int columns = min(COLUMNS_AT_ONCE(step), (out_size.s1 + LANES - 1) / LANES * LANES);
  const int reach = REACH(columns, step);
  const int is_dense = out_stride.s3 == 1 && out_stride.s2 == out_size.s1 &&
                       columns >= out_size.s1;
  compute_t kept[KEPT_ROWS * (SPAN + SPAN_SLACK)];
  compute_t sums[SPAN];

  for (int ow = 0; ow < out_size.s1; ow += columns) {
    const int count = min(columns, out_size.s1 - ow);
    const int first = ow * step - padding.s1;
    int numbers[KEPT_ROWS];
    for (int slot = 0; slot < KEPT_ROWS; ++slot) numbers[slot] = -1;
    for (int oh = begin; oh < end; ++oh) {
      for (int w = 0; w < count; w += LANES) vstore16(base, 0, sums + w);
      for (int m = 0; m < sources; ++m) {
        for (int kh = 0; kh < KERNEL_H; ++kh) {
          const int ih = spread_index(oh * down.s0 - padding.s0 + kh * dilation.s0,
                                      up.s0, source_size.s0);
          if (ih < 0) continue;
          const compute_t *span = keep_row(
              kept, numbers, m * source_size.s0 + ih,
              in + m * source_stride.s1 + ih * source_stride.s2, first, reach, up.s1,
              source_size.s1, source_stride.s3,
              (source_size.s0 - 1 - ih) * source_stride.s2 + source_size.s1);
          const global storage_t *filter = factors + m * weight_stride.s1 + kh * weight_stride.s2;
          for (int w = 0; w < count; w += LANES) {
            lanes_t sum = vload16(0, sums + w);
            for (int kw = 0; kw < KERNEL_W; ++kw) {
              const lanes_t factor = LOAD(filter, kw * weight_stride.s3);
              sum = fma(factor, load_span(span, w * step + kw * dilation.s1, step), sum);
            }
            vstore16(sum, 0, sums + w);
          }
        }
      }
      // The last vector overlaps its neighbour; that of a short row runs into
      // the rows that follow, which are written afterwards.
      const int writable = is_dense ? (end - oh) * out_size.s1 : count;
      for (int w = 0; w < count; w += LANES) {
        const int at = count < LANES ? 0 : min(w, count - LANES);
        store_lanes(target, oh * out_stride.s2 + (ow + at) * out_stride.s3, out_stride.s3,
                    writable - at >= LANES ? LANES : count - at, vload16(0, sums + at));
      }
    }
  }
}

// One work-item: LANES channels of `rows` rows. sources and depth_multiplier are 1.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_channels(DEPTHWISE_PARAMETERS, const int rows) {
  const int channel = get_global_id(0) * LANES;
  const int count = min(LANES, channels - channel);
  const int begin = get_global_id(1) * rows;
  const int end = min(out_size.s0, begin + rows);
  const int n = get_global_id(2);
  const global storage_t *in =
      POINTER(source) + (size_t)n * source_stride.s0 + channel * source_stride.s1;
  global storage_t *target =
      POINTER(out) + (size_t)n * out_stride.s0 + channel * out_stride.s1;
  lanes_t factors[MAX_FILTER_SIZE];
  for (int kh = 0; kh < KERNEL_H; ++kh) {
    for (int kw = 0; kw < KERNEL_W; ++kw) {
      factors[kh * KERNEL_W + kw] = load_lanes(
          POINTER(weight) + weight_stride.s0 + channel * weight_stride.s1 +
              kh * weight_stride.s2 + kw * weight_stride.s3,
          0, weight_stride.s1, count);
    }
  }
  lanes_t base = 0;
  if (has_bias) {
    base = load_lanes(POINTER(bias), channel * bias_stride, bias_stride, count);
  }
  for (int oh = begin; oh < end; ++oh) {
    for (int ow = 0; ow < out_size.s1; ++ow) {
      lanes_t sum = base;
      FOR_FILTER_ELEMENTS
        sum = fma(factors[kh * KERNEL_W + kw],
                  load_lanes(in + ih * source_stride.s2 + iw * source_stride.s3, 0,
                             source_stride.s1, count),
                  sum);
      store_lanes(target + oh * out_stride.s2 + ow * out_stride.s3, 0, out_stride.s1,
                  count, sum);
    }
  }
}

#else

// One work-item: one output; neighbours along the dense dimension.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void depthwise_each(DEPTHWISE_PARAMETERS, const int is_channels_last EPILOGUE_PARAMETERS) {
  const int n = get_global_id(1);
  int i = get_global_id(0);
  if (i >= channels * out_size.s0 * out_size.s1) {
    return;
  }
  int channel;
  if (is_channels_last) {
    channel = i % channels;
    i /= channels;
  } else {
    channel = i / (out_size.s0 * out_size.s1);
    i %= out_size.s0 * out_size.s1;
  }
  const int oh = i / out_size.s1;
  const int ow = i % out_size.s1;
  const global storage_t *in = POINTER(source) + (size_t)n * source_stride.s0 +
      (size_t)(channel / depth_multiplier * sources) * source_stride.s1;
  const global storage_t *factors =
      POINTER(weight) + weight_stride.s0 + channel * sources * weight_stride.s1;
  compute_t sum = has_bias ? LOAD(POINTER(bias), channel * bias_stride) : 0;
  for (int m = 0; m < sources; ++m) {
    FOR_FILTER_ELEMENTS
      sum = fma(LOAD(factors, m * weight_stride.s1 + kh * weight_stride.s2 +
                                  kw * weight_stride.s3),
                LOAD(in, m * source_stride.s1 + ih * source_stride.s2 +
                             iw * source_stride.s3),
                sum);
  }
  const size_t place = n * (size_t)out_stride.s0 + (size_t)channel * out_stride.s1 +
                       oh * out_stride.s2 + ow * out_stride.s3;
  STORE(POINTER(out), place, EPILOGUE(sum, place, channel));
}

#ifdef TILE_COLUMNS

// A work-group makes TILE_COLUMNS x 4 ROW_BLOCKS outputs of PLANES planes from their
// sources in local memory, an item 4 outputs below each other. Items are neighbours
// along a row, or along the channels where these are innermost.
#define TILE_ROWS (4 * ROW_BLOCKS)
#define FROM(outputs, down, filter_size, dilation, up) \
  ((((outputs) - 1) * (down) + ((filter_size) - 1) * (dilation) + (up) - 1) / (up) + 1)
#define IN_ROWS FROM(TILE_ROWS, DOWN_H, FILTER_H, DILATION_H, UP_H)
#define IN_COLUMNS FROM(TILE_COLUMNS, DOWN_W, FILTER_W, DILATION_W, UP_W)
#if CHANNELS_INNERMOST
#define PLACE(plane, row, column) (((row) * IN_COLUMNS + (column)) * PLANES + (plane))
#else
#define PLACE(plane, row, column) (((plane) * IN_ROWS + (row)) * IN_COLUMNS + (column))
#endif
// Of element i of the tile.
#if CHANNELS_INNERMOST
#define PLANE_OF(i) ((i) % PLANES)
#define COLUMN_OF(i) ((i) / PLANES % IN_COLUMNS)
#define ROW_OF(i) ((i) / (PLANES * IN_COLUMNS))
#else
#define PLANE_OF(i) ((i) / (IN_COLUMNS * IN_ROWS))
#define COLUMN_OF(i) ((i) % IN_COLUMNS)
#define ROW_OF(i) ((i) / IN_COLUMNS % IN_ROWS)
#endif
#define ELEMENTS (PLANES * IN_ROWS * IN_COLUMNS)
// All loads of a block are under way before one of them is used. Of 3x3 filters a block
// is all.
#define BLOCK 5
#define FOR_BLOCK(body) body(0) body(1) body(2) body(3) body(4)
#define LOAD_ELEMENT(e)                                                           \
  const int i_##e = first + (e) * TILE_GROUP + item;                              \
  storage_t loaded_##e = 0;                                                       \
  {                                                                               \
    const int ih = begin_h + ROW_OF(i_##e);                                       \
    const int iw = begin_w + COLUMN_OF(i_##e);                                    \
    if (i_##e < ELEMENTS && (uint)ih < (uint)source_size.s0 &&                    \
        (uint)iw < (uint)source_size.s1) {                                        \
      loaded_##e = POINTER(source)[plane_from[PLANE_OF(i_##e)] +                  \
                                   m * source_stride.s1 + ih * source_stride.s2 + \
                                   iw * source_stride.s3];                        \
    }                                                                             \
  }
#define PUT_ELEMENT(e) \
  if (i_##e < ELEMENTS) tile[i_##e] = STORED_VALUE(loaded_##e);
#define FLOOR_DIVIDE(a, b) ((a) >= 0 ? (a) / (b) : -((-(a) + (b) - 1) / (b)))
// Output j of the item; of a spread source, only where a filter element meets one of it.
#define ADD_ELEMENT(j)                                                 \
  {                                                                    \
    const int at = off_h + (block * 4 + j) * DOWN_H + kh * DILATION_H; \
    if (UP_H == 1 || at % UP_H == 0)                                   \
      sum##j = fma(factor, tile[PLACE(p, at / UP_H, column)], sum##j); \
  }
#define PUT_OUTPUT(j)                                                  \
  if (row + j < out_size.s0) {                                         \
    const size_t place = out_from + (row + j) * out_stride.s2;         \
    STORE(POINTER(out), place, EPILOGUE(sum##j, place, channel));      \
  }

kernel __attribute__((reqd_work_group_size(TILE_GROUP, 1, 1)))
void depthwise_tiles(DEPTHWISE_PARAMETERS, const int images EPILOGUE_PARAMETERS) {
  local compute_t tile[ELEMENTS];
  local size_t plane_from[PLANES];  // where the source of each plane begins
  const int item = get_local_id(0);
#if CHANNELS_INNERMOST
  const int p = item % PLANES;
  const int col = item / PLANES % TILE_COLUMNS;
  const int block = item / (PLANES * TILE_COLUMNS);
#else
  const int col = item % TILE_COLUMNS;
  const int block = item / TILE_COLUMNS % ROW_BLOCKS;
  const int p = item / (TILE_COLUMNS * ROW_BLOCKS);
#endif
  const int tiles_w = (out_size.s1 + TILE_COLUMNS - 1) / TILE_COLUMNS;
  const int first_row = (int)get_group_id(0) / tiles_w * TILE_ROWS;
  const int first_column = (int)get_group_id(0) % tiles_w * TILE_COLUMNS;
  const int first_plane = get_group_id(1) * PLANES;
  const int planes = images * channels;
  const int plane = min(first_plane + p, planes - 1);
  const int channel = plane % channels;
  // Where the tile's sources begin, and how far into a spread element.
  const int origin_h = first_row * DOWN_H - padding.s0;
  const int origin_w = first_column * DOWN_W - padding.s1;
  const int begin_h = FLOOR_DIVIDE(origin_h, UP_H);
  const int begin_w = FLOOR_DIVIDE(origin_w, UP_W);
  const int off_h = origin_h - begin_h * UP_H;
  const int off_w = origin_w - begin_w * UP_W;
  const global storage_t *factors =
      POINTER(weight) + weight_stride.s0 + channel * sources * weight_stride.s1;
  compute_t sum0 = has_bias ? LOAD(POINTER(bias), channel * bias_stride) : 0;
  compute_t sum1 = sum0, sum2 = sum0, sum3 = sum0;
  if (item < PLANES) {
    const int own = min(first_plane + item, planes - 1);
    const int n = own / channels;
    const int from = (own - n * channels) / depth_multiplier * sources;
    plane_from[item] = (size_t)n * source_stride.s0 + (size_t)from * source_stride.s1;
  }
  for (int m = 0; m < sources; ++m) {
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 1
    for (int first = 0; first < ELEMENTS; first += BLOCK * TILE_GROUP) {
      FOR_BLOCK(LOAD_ELEMENT)
      FOR_BLOCK(PUT_ELEMENT)
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#if FILTER_H <= 5
#pragma unroll
#endif
    for (int kh = 0; kh < FILTER_H; ++kh) {
#pragma unroll
      for (int kw = 0; kw < FILTER_W; ++kw) {
        const int along = off_w + col * DOWN_W + kw * DILATION_W;
        const int column = along / UP_W;
        const compute_t factor = LOAD(factors, m * weight_stride.s1 + kh * weight_stride.s2 +
                                                   kw * weight_stride.s3);
        if (UP_W == 1 || along % UP_W == 0) {
          ADD_ELEMENT(0)
          ADD_ELEMENT(1)
          ADD_ELEMENT(2)
          ADD_ELEMENT(3)
        }
      }
    }
  }
  const int row = first_row + block * 4;
  if (first_plane + p < planes && first_column + col < out_size.s1) {
    const size_t out_from = (size_t)(plane / channels) * out_stride.s0 +
                            (size_t)channel * out_stride.s1 +
                            (first_column + col) * out_stride.s3;
    PUT_OUTPUT(0)
    PUT_OUTPUT(1)
    PUT_OUTPUT(2)
    PUT_OUTPUT(3)
  }
}

#endif

#endif
