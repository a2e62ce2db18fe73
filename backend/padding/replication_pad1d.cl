// Replication padding of the last dimension, and its gradient.
//
// A work-item makes one element of a row; rows are (batch, channel) pairs of any
// strides. `left` and the right padding may be negative, which crops.

#include "types.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif

// Sizes (batches, channels, columns) of what is written; strides of both.
#define PARAMETERS                                                       \
  TENSOR(storage_t, out), CONST_TENSOR(storage_t, in), const int4 sizes, \
      const long4 out_strides, const long4 in_strides,                   \
      const int in_columns, const int left

inline long row_offset(int row, int channels, long4 strides) {
  return row % channels * strides.y + row / channels * strides.x;
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void replication_pad1d_forward(PARAMETERS) {
  const int column = get_global_id(0);
  const int row = get_global_id(1);
  if (column >= sizes.z) {
    return;
  }
  const int source = clamp(column - left, 0, in_columns - 1);
  STORE(POINTER(out), row_offset(row, sizes.y, out_strides) + column * out_strides.z,
        LOAD(POINTER(in), row_offset(row, sizes.y, in_strides) + source * in_strides.z));
}

// The border's elements gather what was copied from them, in a fixed order.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void replication_pad1d_backward(PARAMETERS) {
  const int column = get_global_id(0);
  const int row = get_global_id(1);
  if (column >= sizes.z) {
    return;
  }
  const int begin = column == 0 ? 0 : max(column + left, 0);
  const int end = column == sizes.z - 1 ? in_columns : min(column + left + 1, in_columns);
  compute_t sum = 0;
  for (int i = begin; i < end; ++i) {
    sum += LOAD(POINTER(in), row_offset(row, sizes.y, in_strides) + i * in_strides.z);
  }
  STORE(POINTER(out), row_offset(row, sizes.y, out_strides) + column * out_strides.z, sum);
}
