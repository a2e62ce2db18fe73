// Packs a strided matrix into panels (panels.clh).

#include "types.clh"
#include "lanes.clh"
#include "transpose_vectors.clh"
#include "panels.clh"

#ifndef IS_GPU
// 32 depths of 8 rows, or 16 depths of WIDTH rows, that follow each other in
// memory: read by vectors along the depth.
#define DEPTHS_AT_ONCE (WIDTH == 8 ? 32 : 16)
static inline void pack_transposed(const global storage_t *in, const index_t *offsets,
                                   global compute_t *out) {
  lanes_t lines[16];
#if WIDTH == 8
#pragma unroll
  for (int l = 0; l < 8; ++l) {
    lines[l] = CONCAT(load_lanes_, DTYPE)(in + offsets[l]);
    lines[l + 8] = CONCAT(load_lanes_, DTYPE)(in + offsets[l] + 16);
  }
  transpose(lines);
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    vstore8(lines[k].lo, k, out);
    vstore8(lines[k].hi, k + 16, out);
  }
#else
  for (int first = 0; first < WIDTH; first += 16) {
#pragma unroll
    for (int l = 0; l < 16; ++l) {
      lines[l] = CONCAT(load_lanes_, DTYPE)(in + offsets[first + l]);
    }
    transpose(lines);
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      vstore16(lines[k], 0, out + k * WIDTH + first);
    }
  }
#endif
}

// One work-item: a panel's share of DEPTH_BLOCK depths.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_panels_cpu(CONST_TENSOR(storage_t, source), TENSOR(compute_t, panels),
                     const int rows, const int depth, LEVELS(row), LEVELS(depth),
                     const index_t batch_stride) {
  const int panel = get_global_id(0);
  const int begin = get_global_id(1) * DEPTH_BLOCK;
  const int end = min(depth, begin + DEPTH_BLOCK);
  const size_t batch = get_global_id(2);
  const global storage_t *in = POINTER(source) + batch * batch_stride;
  const int first = panel * WIDTH;
  global compute_t *out = POINTER(panels) + panel_offset(batch, rows, depth, first, begin);
  const int width = min(WIDTH, rows - first);
  index_t offsets[WIDTH];
  for (int l = 0; l < WIDTH; ++l) {
    offsets[l] = LEVEL_OFFSET(row, min(first + l, rows - 1));
  }
  const int is_dense = width == WIDTH && row_stride == 1 &&
                       first / row_size == (first + WIDTH - 1) / row_size;
  const int is_transposed = depth_stride == 1 && width == WIDTH && WIDTH % 8 == 0;
  int outer = begin / depth_size;
  int inner = begin % depth_size;
  for (int k = begin; k < end; ++k) {
    if (is_transposed) {
      const int run = min(end - k, depth_size - inner) / DEPTHS_AT_ONCE * DEPTHS_AT_ONCE;
      for (const int stop = k + run; k < stop; k += DEPTHS_AT_ONCE) {
        pack_transposed(in + outer * depth_outer_stride + inner, offsets, out);
        out += DEPTHS_AT_ONCE * WIDTH;
        inner += DEPTHS_AT_ONCE;
      }
      if (inner == depth_size) {
        inner = 0;
        ++outer;
      }
      if (k == end) {
        break;
      }
    }
    const index_t at = outer * depth_outer_stride + inner * depth_stride;
    if (is_dense) {
      const global storage_t *line = in + offsets[0] + at;
      for (int l = 0; l < WIDTH; ++l) {
        out[l] = LOAD(line, l);
      }
    } else {
      for (int l = 0; l < WIDTH; ++l) {
        out[l] = l < width ? LOAD(in, offsets[l] + at) : 0;
      }
    }
    out += WIDTH;
    if (++inner == depth_size) {
      inner = 0;
      ++outer;
    }
  }
}

#else
// One work-item: one element of a panel.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void pack_panels_gpu(CONST_TENSOR(storage_t, source), TENSOR(compute_t, panels),
                     const int rows, const int depth, LEVELS(row), LEVELS(depth),
                     const index_t batch_stride) {
  const int k = get_global_id(0) / WIDTH;
  if (k >= depth) return;
  const size_t batch = get_global_id(2);
  const int row = get_global_id(1) * WIDTH + get_global_id(0) % WIDTH;
  compute_t value = 0;
  if (row < rows) {
    value = LOAD(POINTER(source) + batch * batch_stride,
                 LEVEL_OFFSET(row, row) + LEVEL_OFFSET(depth, k));
  }
  POINTER(panels)[panel_offset(batch, rows, depth, row, k)] = value;
}
#endif
