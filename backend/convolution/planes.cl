// Convolutions in two dimensions of groups of few channels, for cpu-class
// devices, without columns.
//
// A work-item takes a strip of rows of a group's output. It lays the image's
// rows, with the zeros around them, into planes of its own: one for each
// channel and remainder of a position by the stride, as wide as the output and
// the reach of the taps together. A tap is then an offset into a channel's
// planes, the same for all outputs, and outputs of all rows are one line, of
// which vectors are computed; what lies between the output's rows is not stored.

#include "types.clh"
#include "lanes.clh"
#include "panels.clh"
#include "image_lines.clh"

#define PLANE_SLACK 16  // a plane's last vector ends behind it
#define MAX_DEPTH 256   // products summed before they are added to a total

typedef struct {
  int2 kernel_size;  // (h, w), as all pairs
  int2 stride;
  int2 padding;
  int2 dilation;
  int2 image_size;
  int2 out_size;
  int channels;      // of a group's image
  int out_channels;  // of a group's output
  int rows;          // of a strip
  int channels_at_once;
  int out_channels_at_once;  // a multiple of ROWS
  int is_dense;              // the output's rows follow each other
} geometry_t;

static inline int pitch_of(const geometry_t *g) {
  return g->out_size.y + (g->kernel_size.y - 1) * g->dilation.y / g->stride.y;
}
static inline int plane_rows_of(const geometry_t *g) {
  return g->rows + (g->kernel_size.x - 1) * g->dilation.x / g->stride.x;
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void planes_forward(CONST_TENSOR(storage_t, image), CONST_TENSOR(compute_t, weight),
                    CONST_TENSOR(storage_t, bias), TENSOR(storage_t, out),
                    const geometry_t g, const int groups, const int groups_at_once,
                    const int4 image_stride, const int4 out_stride, const int extent,
                    const int has_bias, const int bias_stride) {
  const int pitch = pitch_of(&g);
  const int plane_rows = plane_rows_of(&g);
  const int plane_size = plane_rows * pitch + PLANE_SLACK;
  const int channel_size = plane_size * g.stride.x * g.stride.y;
  const int taps = g.kernel_size.x * g.kernel_size.y;
  const int parts = (g.out_channels + g.out_channels_at_once - 1) / g.out_channels_at_once;
  const int first_out = get_global_id(0) % parts * g.out_channels_at_once;
  const int first_row = get_global_id(0) / parts * g.rows;
  const int rows = min(g.rows, g.out_size.x - first_row);
  const int outs = min(g.out_channels_at_once, g.out_channels - first_out);
  const int line = (rows - 1) * pitch + g.out_size.y;
  const int line_size = (line + 16 * VECTORS - 1) / (16 * VECTORS) * (16 * VECTORS);
  const int first_group = get_global_id(1) * groups_at_once;
  const int n = get_global_id(2);

  compute_t planes[PLANES_SIZE] __attribute__((aligned(64)));
  compute_t totals[TOTALS_SIZE] __attribute__((aligned(64)));
  int offsets[MAX_DEPTH];
  for (int k = 0; k < g.channels_at_once * taps; ++k) {
    const int y = k % taps / g.kernel_size.y * g.dilation.x;
    const int x = k % g.kernel_size.y * g.dilation.y;
    offsets[k] = k / taps * channel_size +
        (y % g.stride.x * g.stride.y + x % g.stride.y) * plane_size +
        y / g.stride.x * pitch + x / g.stride.y;
  }

  for (int group = first_group; group < min(first_group + groups_at_once, groups); ++group) {
    for (int c = 0; c < g.channels; c += g.channels_at_once) {
      const int channels = min(g.channels_at_once, g.channels - c);
      for (int i = 0; i < channels; ++i) {
        const int channel_at =
            n * image_stride.x + (group * g.channels + c + i) * image_stride.y;
        for (int row = 0; row < plane_rows; ++row) {
          for (int phase = 0; phase < g.stride.x * g.stride.y; ++phase) {
            const int phase_x = phase % g.stride.y;
            const int y = (first_row + row) * g.stride.x + phase / g.stride.y - g.padding.x;
            compute_t *target = planes + i * channel_size + phase * plane_size + row * pitch;
            const int is_inside = y >= 0 && y < g.image_size.x;
            for (int x = 0; x < pitch; x += 16) {
              VECTOR value = 0;
              if (is_inside) {
                value = load_columns_apart(
                    POINTER(image), channel_at + y * image_stride.z,
                    x * g.stride.y + phase_x - g.padding.y, g.stride.y, g.image_size.y,
                    image_stride.w, extent);
              }
              vstore16(value, 0, target + x);
            }
          }
        }
      }
      const int depth = channels * taps;
      for (int o = 0; o < outs; o += ROWS) {
        const int panels = (g.out_channels + ROWS - 1) / ROWS;
        const global compute_t *factors = POINTER(weight) +
            (size_t)((group * panels + (first_out + o) / ROWS) * g.channels + c) * taps * ROWS;
        for (int at = 0; at < line_size; at += 16 * VECTORS) {
          VECTOR sums[ROWS][VECTORS];
#pragma unroll
          for (int row = 0; row < ROWS; ++row) {
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
              sums[row][v] = 0;
            }
          }
          for (int k = 0; k < depth; ++k) {
            const compute_t *source = planes + offsets[k] + at;
            VECTOR values[VECTORS];
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
              values[v] = vload16(v, source);
            }
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
              const VECTOR factor = factors[k * ROWS + row];
#pragma unroll
              for (int v = 0; v < VECTORS; ++v) {
                sums[row][v] = fma(factor, values[v], sums[row][v]);
              }
            }
          }
#pragma unroll
          for (int row = 0; row < ROWS; ++row) {
            compute_t *total = totals + (o + row) * line_size + at;
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
              VECTOR sum = sums[row][v];
              if (c > 0) {
                sum += vload16(v, total);
              }
              vstore16(sum, v, total);
            }
          }
        }
      }
    }
    for (int o = 0; o < outs; ++o) {
      const int channel = group * g.out_channels + first_out + o;
      const compute_t base = has_bias ? LOAD(POINTER(bias), channel * bias_stride) : 0;
      global storage_t *target = POINTER(out) + n * out_stride.x + channel * out_stride.y +
                                 first_row * out_stride.z;
      for (int row = 0; row < rows; ++row) {
        const compute_t *total = totals + o * line_size + row * pitch;
        // A row's last vector may reach into rows that follow and are written later.
        const int reach = g.is_dense ? (rows - row) * g.out_size.y : g.out_size.y;
        const int whole = out_stride.w == 1 ? min(reach / 16 * 16, (g.out_size.y + 15) / 16 * 16) : 0;
        for (int x = 0; x < whole; x += 16) {
          CONCAT(store_lanes_, DTYPE)
          (target + row * out_stride.z + x, vload16(0, total + x) + base);
        }
        for (int x = whole; x < g.out_size.y; ++x) {
          STORE(target, row * out_stride.z + x * out_stride.w, total[x] + base);
        }
      }
    }
  }
}
