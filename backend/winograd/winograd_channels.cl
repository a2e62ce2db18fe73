// Winograd's transforms on CPUs where channels are innermost, as in channels_last: by
// vectors of channels, between images and rows of channels, one a tile, for each
// frequency. One work-item: as many tiles as have CHANNELS_AT_ONCE channels.

#include "winograd_lanes.clh"

#define CHANNELS_AT_ONCE 2048
#define LOAD_LANES(p) CONCAT(load_lanes_, DTYPE)(p)

#define LOAD_PIXEL(y, x) LOAD_LANES(pixels + y * h_stride + x * w_stride)
#define LOAD_INSIDE(y, x)                                             \
  ((uint)(row + y) < (uint)height && (uint)(column + x) < (uint)width \
       ? LOAD_PIXEL(y, x)                                             \
       : (lanes_t)0)
#define TRANSFORM_COLUMNS(load)                                          \
  _Pragma("unroll") for (int x = 0; x < 6; ++x) {                        \
    lanes_t d[6], o[6];                                                  \
    _Pragma("unroll") for (int y = 0; y < 6; ++y) d[y] = load(y, x);     \
    transform_input(d, o);                                               \
    _Pragma("unroll") for (int y = 0; y < 6; ++y) half_way[y][x] = o[y]; \
  }

// Tiles [begin, end), and the first of them.
#define TILES_OF_ITEM                                                    \
  const int tiles_at_once = (CHANNELS_AT_ONCE + channels - 1) / channels; \
  const int begin = get_global_id(0) * tiles_at_once;                    \
  const int end = min(tiles, begin + tiles_at_once);                     \
  tile_t tile = tile_at(first + begin, tile_rows, tile_columns);

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void winograd_input_channels(CONST_TENSOR(storage_t, input), TENSOR(compute_t, matrices),
                             const int top, const int left, const int row_stride,
                             const int frequency_stride, TILES_PARAMETERS) {
  TILES_OF_ITEM
  for (int t = begin; t < end; ++t) {
    const int row = tile.row * 4 - top;
    const int column = tile.column * 4 - left;
    const int is_inside =
        row >= 0 && row + 6 <= height && column >= 0 && column + 6 <= width;
    const global storage_t *image = POINTER(input) + (long)tile.image * batch_stride +
                                    row * h_stride + column * w_stride;
    for (int next = 0; next < channels; next += LANES) {
      const int c = min(next, channels - LANES);  // the last overlaps its neighbour
      const global storage_t *pixels = image + c;
      lanes_t half_way[6][6];
      if (is_inside) {
        TRANSFORM_COLUMNS(LOAD_PIXEL)
      } else {
        TRANSFORM_COLUMNS(LOAD_INSIDE)
      }
      global compute_t *to = POINTER(matrices) + (size_t)t * row_stride + c;
      store_input_tile(to, frequency_stride, half_way);
    }
    if (++tile.column == tile_columns) tile = next_row(tile, tile_rows);
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void winograd_output_channels(CONST_TENSOR(compute_t, products), CONST_TENSOR(storage_t, bias),
                              TENSOR(storage_t, output), const int has_bias,
                              const int bias_stride, const int row_stride,
                              const int frequency_stride, TILES_PARAMETERS) {
  TILES_OF_ITEM
  for (int t = begin; t < end; ++t) {
    const int rows = min(4, height - tile.row * 4);
    const int columns = min(4, width - tile.column * 4);
    const size_t corner = (size_t)tile.image * batch_stride + tile.row * 4 * h_stride +
                          tile.column * 4 * w_stride;
    for (int next = 0; next < channels; next += LANES) {
      const int c = min(next, channels - LANES);  // the last overlaps its neighbour
      const global compute_t *in = POINTER(products) + (size_t)t * row_stride + c;
      lanes_t half_way[4][6];
      load_output_tile(in, frequency_stride, half_way);
      const lanes_t added =
          has_bias ? load_lanes(POINTER(bias), c * bias_stride, bias_stride, LANES)
                   : (lanes_t)0;
      const size_t at = corner + c;
#pragma unroll
      for (int y = 0; y < 4; ++y) {
        lanes_t o[4];
        transform_output(half_way[y], o);
#pragma unroll
        for (int x = 0; x < 4; ++x) {
          if (y < rows && x < columns) {
            global storage_t *to = POINTER(output) + at + y * h_stride + x * w_stride;
            const lanes_t value = o[x] + added;
            store_full_lanes_nt(to, value);
          }
        }
      }
    }
    if (++tile.column == tile_columns) tile = next_row(tile, tile_rows);
  }
}
