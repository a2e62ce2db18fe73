// Convolutions in two dimensions of groups of few channels, for cpu-class
// devices, without columns.
//
// A work-item takes a row tile of rows of a group's output and computes vectors of
// the line that they are between planes of its own (direct_grouped.clh); what lies between
// the output's rows is not stored.
//
// Channels that are innermost (of an image, BY_CHANNELS_IN, or of an output,
// BY_CHANNELS_OUT) are transposed in registers, those of several groups together.

#include "types.clh"
#include "lanes.clh"
#include "panels.clh"
#include "image_lines.clh"
#include "transpose_vectors.clh"
#include "direct_grouped.clh"

#define MAX_DEPTH 256  // products summed before they are added to a total
#define OUT_CHANNELS_AT_ONCE (BY_CHANNELS_OUT ? 16 : 1)

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void direct_grouped_forward(CONST_TENSOR(storage_t, image), CONST_TENSOR(compute_t, weight),
                    CONST_TENSOR(storage_t, bias), TENSOR(storage_t, out),
                    const geometry_t g, const int groups, const int groups_at_once,
                    const int4 image_stride, const int4 out_stride, const int extent,
                    const int has_bias, const int bias_stride) {
  const int pitch = pitch_of(&g);
  const int plane_rows = plane_rows_of(&g);
  const int plane_size = plane_rows * pitch + PLANE_SLACK;
  const int channel_size = plane_size * g.stride.x * g.stride.y;
  const int filter_size = g.kernel_size.x * g.kernel_size.y;
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
  for (int k = 0; k < g.channels_at_once * filter_size; ++k) {
    offsets[k] = offset_of(&g, k, channel_size, plane_size, pitch);
  }

  const int last_group = min(first_group + groups_at_once, groups);
  for (int group = first_group; group < last_group; group += g.bundle) {
    const int members = min(g.bundle, last_group - group);
    for (int c = 0; c < g.channels; c += g.channels_at_once) {
      const int channels = min(g.channels_at_once, g.channels - c);
      LAY_PLANES(planes, POINTER(image),
                 n * image_stride.x + (group * g.channels + c) * image_stride.y,
                 members * channels, channel_size, plane_size, pitch, plane_rows, plane_rows,
                 first_row, g.stride, g.padding, g.image_size, image_stride, extent)
      const int depth = channels * filter_size;
      for (int member = 0; member < members; ++member) {
        for (int o = 0; o < outs; o += ROWS) {
          const int panels = (g.out_channels + ROWS - 1) / ROWS;
          const int panel = (group + member) * panels + (first_out + o) / ROWS;
          const global compute_t *factors =
              POINTER(weight) + (size_t)(panel * g.channels + c) * filter_size * ROWS;
          for (int at = 0; at < line_size; at += 16 * VECTORS) {
            const compute_t *line_at = planes + member * g.channels * channel_size + at;
            VECTOR sums[ROWS][VECTORS];
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
#pragma unroll
              for (int v = 0; v < VECTORS; ++v) {
                sums[row][v] = 0;
              }
            }
            for (int k = 0; k < depth; ++k) {
              const compute_t *source = line_at + offsets[k];
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
              compute_t *total = totals + (member * outs + o + row) * line_size + at;
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
    }
    for (int o = 0; o < members * outs; o += OUT_CHANNELS_AT_ONCE) {
      const int channel = group * g.out_channels + first_out + o;
      global storage_t *target = POINTER(out) + n * out_stride.x + channel * out_stride.y +
                                 first_row * out_stride.z;
#if BY_CHANNELS_OUT
      const int count = min(16, members * outs - o);
      compute_t base[16] __attribute__((aligned(64)));
      for (int k = 0; k < 16; ++k) {
        base[k] = has_bias && k < count ? LOAD(POINTER(bias), (channel + k) * bias_stride) : 0;
      }
      for (int row = 0; row < rows; ++row) {
        for (int x = 0; x < g.out_size.y; x += 16) {
          lanes_t lines[16];
#pragma unroll
          for (int k = 0; k < 16; ++k) {
            lines[k] = 0;
            if (k < count) {
              lines[k] = vload16(0, totals + (o + k) * line_size + row * pitch + x);
            }
          }
          transpose(lines);
#pragma unroll
          for (int l = 0; l < 16; ++l) {
            if (x + l < g.out_size.y) {
              global storage_t *pixel = target + row * out_stride.z + (x + l) * out_stride.w;
              const lanes_t value = lines[l] + vload16(0, base);
              if (count == 16) {
                CONCAT(store_lanes_, DTYPE)(pixel, value);
              } else {
                compute_t lane[16];
                vstore16(value, 0, lane);
                for (int k = 0; k < count; ++k) {
                  STORE(pixel, k, lane[k]);
                }
              }
            }
          }
        }
      }
#else
      const compute_t base = has_bias ? LOAD(POINTER(bias), channel * bias_stride) : 0;
      for (int row = 0; row < rows; ++row) {
        const compute_t *total = totals + o * line_size + row * pitch;
        // A row's last vector may reach into rows that follow and are written later.
        const int reach = g.is_dense ? (rows - row) * g.out_size.y : g.out_size.y;
        const int whole = out_stride.w == 1
            ? min(reach / 16 * 16, (g.out_size.y + 15) / 16 * 16) : 0;
        for (int x = 0; x < whole; x += 16) {
          CONCAT(store_lanes_, DTYPE)
          (target + row * out_stride.z + x, vload16(0, total + x) + base);
        }
        for (int x = whole; x < g.out_size.y; ++x) {
          STORE(target, row * out_stride.z + x * out_stride.w, total[x] + base);
        }
      }
#endif
    }
  }
}
