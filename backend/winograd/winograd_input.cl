// Images to the right operands of Winograd's 36 products on GPUs: panels of WIDTH
// tiles (panels.clh), for the tiles from `first` on.

#include "winograd.clh"
#include "panels.clh"

// One work-item: one tile of one channel.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void winograd_input(CONST_TENSOR(storage_t, input), TENSOR(compute_t, panels),
                    const int top, const int left, TILES_PARAMETERS) {
  const int t = get_global_id(0);
  const int channel = get_global_id(1);
  const int panel_count = (tiles + WIDTH - 1) / WIDTH;
  if (t >= panel_count * WIDTH) {
    return;
  }
  const tile_t tile = tile_at(first + t, tile_rows, tile_columns);
  const int row = tile.row * 4 - top;
  const int column = tile.column * 4 - left;
  const global storage_t *in =
      POINTER(input) + tile.image * batch_stride + channel * channel_stride;
  compute_t lines[6][6];
#pragma unroll
  for (int x = 0; x < 6; ++x) {
    compute_t d[6], o[6];
#pragma unroll
    for (int y = 0; y < 6; ++y) {
      d[y] = t < tiles && (uint)(row + y) < (uint)height && (uint)(column + x) < (uint)width
                 ? LOAD(in, (row + y) * h_stride + (column + x) * w_stride)
                 : 0;
    }
    transform_input(d, o);
#pragma unroll
    for (int y = 0; y < 6; ++y) {
      lines[y][x] = o[y];
    }
  }
  const size_t frequency_stride = (size_t)panel_count * channels * WIDTH;
  global compute_t *out = POINTER(panels) +
      ((size_t)(t / WIDTH) * channels + channel) * WIDTH + t % WIDTH;
#pragma unroll
  for (int y = 0; y < 6; ++y) {
    compute_t o[6];
    transform_input(lines[y], o);
    global compute_t *line = out + y * 6 * frequency_stride;
#pragma unroll
    for (int x = 0; x < 6; ++x) {
      line[x * frequency_stride] = o[x];
    }
  }
}
