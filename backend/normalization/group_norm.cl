// Group normalisation of contiguous images, on a CPU whose cache holds a group: a
// work-item reads a group from memory once, for its sums, and transforms it from cache.
// The order of everything is fixed.
//
// To `rows` a group is a channel of a batch of one.

#include "batch_norm.clh"
#include "batch_norm_sums.clh"
#include "batch_norm_kept.clh"

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void group_norm(
    ROWS,
    const index_t pixels,  // of a group
    const int tile,
    const compute_t epsilon,
    const int groups,
    const int group_channels,
    TENSOR(storage_t, out),
    TENSOR(compute_t, means),
    TENSOR(compute_t, inverse_deviations),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(param_t, weight),
    CONST_TENSOR(param_t, bias)) {
  COPY_ROWS
  const index_t length = pixels / group_channels;
  FOR_EACH_CHANNEL(group) {
    const global storage_t *x = POINTER(self) + group * rows.row_strides[1];
    global storage_t *y = POINTER(out) + group * rows.row_strides[0];
    const moments_t moments = moments_of_channel(&rows, x, pixels);
    const compute_t center = moments.mean;
    const compute_t inverse = inverse_deviation_of(moments, pixels, epsilon);
    POINTER(means)[group] = center;
    POINTER(inverse_deviations)[group] = inverse;
    for (int i = 0; i < group_channels; ++i) {
      const int c = group % groups * group_channels + i;
      const compute_t scale =
          weight_memory ? inverse * LOAD_PARAM(POINTER(weight), c) : inverse;
      const compute_t shift = bias_memory ? LOAD_PARAM(POINTER(bias), c) : 0;
      const global storage_t *from = x + i * length;
      global storage_t *to = y + i * length;
      TRANSFORM(to,
                (VALUES_AT(from) - center) * scale + shift,
                (VALUE_AT(from) - center) * scale + shift)
    }
  }
}

// `sums` and `products` are of each channel of each image: of grad_output, and of
// grad_output by the normalised input.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void group_norm_backward(
    ROWS,
    const index_t pixels,  // of a group
    const int tile,
    const int groups,
    const int group_channels,
    TENSOR(storage_t, grad_input),
    TENSOR(compute_t, sums),
    TENSOR(compute_t, products),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(storage_t, grad_output),
    CONST_TENSOR(compute_t, means),
    CONST_TENSOR(compute_t, inverse_deviations),
    CONST_TENSOR(param_t, weight)) {
  COPY_ROWS
  const index_t length = pixels / group_channels;
  FOR_EACH_CHANNEL(group) {
    const global storage_t *x = POINTER(self) + group * rows.row_strides[1];
    const global storage_t *grad = POINTER(grad_output) + group * rows.row_strides[2];
    const compute_t center = POINTER(means)[group];
    const compute_t inverse = POINTER(inverse_deviations)[group];
    const int first_weight = group % groups * group_channels;
    gradient_sums_t total = {0, 0};
    for (int i = 0; i < group_channels; ++i) {
      const gradient_sums_t channel =
          gradient_sums_of(&rows, x, grad, center, i * length, (i + 1) * length);
      const long at = (long)group * group_channels + i;
      POINTER(sums)[at] = channel.sum;
      POINTER(products)[at] = channel.product * inverse;
      const compute_t factor =
          weight_memory ? LOAD_PARAM(POINTER(weight), first_weight + i) : 1;
      total.sum += channel.sum * factor;
      total.product += channel.product * factor;
    }

    const compute_t shift = shift_of(total, pixels, inverse);
    const compute_t slope = slope_of(total, pixels, inverse, inverse);
    global storage_t *result = POINTER(grad_input) + group * rows.row_strides[0];
    for (int i = 0; i < group_channels; ++i) {
      const compute_t scale =
          weight_memory ? inverse * LOAD_PARAM(POINTER(weight), first_weight + i)
                        : inverse;
      const global storage_t *from = x + i * length;
      const global storage_t *grad_from = grad + i * length;
      global storage_t *to = result + i * length;
      TRANSFORM(to,
                VALUES_AT(grad_from) * scale - shift - (VALUES_AT(from) - center) * slope,
                VALUE_AT(grad_from) * scale - shift - (VALUE_AT(from) - center) * slope)
    }
  }
}
