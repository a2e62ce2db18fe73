// Batch normalisation of whole channels, on a CPU. Of those that a cache holds, a
// work-item reads a channel from memory once, for its sums, and transforms it from
// cache; with running statistics any will do. The order of everything is fixed.

#include "batch_norm.clh"
#include "batch_norm_sums.clh"
#include "batch_norm_kept.clh"

// Channel `c` of the input, which begins at `x`.
#define TRANSFORM_CHANNEL(mean, inverse)                                               \
  {                                                                                    \
    const compute_t center = mean;                                                     \
    compute_t scale = inverse;                                                         \
    if (weight_memory) scale *= LOAD_PARAM(POINTER(weight), c);                        \
    const compute_t shift = bias_memory ? LOAD_PARAM(POINTER(bias), c) : 0;            \
    global storage_t *y = POINTER(out) + c * rows.row_strides[0];                      \
    FOR_EACH_RUN(&rows, 0, pixels) {                                                   \
      const global storage_t *from = x + pixel_offset(&rows, 1, pixel);                \
      global storage_t *to = y + pixel_offset(&rows, 0, pixel);                        \
      TRANSFORM(to,                                                                    \
                (VALUES_AT(from) - center) * scale + shift,                            \
                (VALUE_AT(from) - center) * scale + shift)                             \
    }                                                                                  \
  }

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_channels(
    const rows_t rows,
    const index_t pixels,
    const int tile,
    const compute_t epsilon,
    const compute_t momentum,
    const long running_mean_stride,
    const long running_var_stride,
    TENSOR(storage_t, out),
    TENSOR(compute_t, batch_mean),
    TENSOR(compute_t, inverse_deviation),
    TENSOR(param_t, running_mean),
    TENSOR(param_t, running_var),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(param_t, weight),
    CONST_TENSOR(param_t, bias)) {
  FOR_EACH_CHANNEL(c) {
    const global storage_t *x = POINTER(self) + c * rows.row_strides[1];
    const moments_t moments = moments_of_channel(&rows, x, pixels);
    const compute_t inverse = inverse_deviation_of(moments, pixels, epsilon);
    POINTER(batch_mean)[c] = moments.mean;
    POINTER(inverse_deviation)[c] = inverse;
    UPDATE_RUNNING(c, moments, pixels)

    TRANSFORM_CHANNEL(moments.mean, inverse)
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_channels_running(
    const rows_t rows,
    const index_t pixels,
    const int tile,
    const compute_t epsilon,
    const long running_mean_stride,
    const long running_var_stride,
    TENSOR(storage_t, out),
    CONST_TENSOR(param_t, running_mean),
    CONST_TENSOR(param_t, running_var),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(param_t, weight),
    CONST_TENSOR(param_t, bias)) {
  FOR_EACH_CHANNEL(c) {
    const global storage_t *x = POINTER(self) + c * rows.row_strides[1];
    const compute_t variance = LOAD_PARAM(POINTER(running_var), c * running_var_stride);
    TRANSFORM_CHANNEL(LOAD_PARAM(POINTER(running_mean), c * running_mean_stride),
                      (compute_t)1 / sqrt(variance + epsilon))
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_channels_backward(
    const rows_t rows,
    const index_t pixels,
    const int tile,
    TENSOR(storage_t, grad_input),
    TENSOR(param_t, grad_weight),
    TENSOR(param_t, grad_bias),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(storage_t, grad_output),
    CONST_TENSOR(compute_t, mean),
    CONST_TENSOR(compute_t, inverse_deviation),
    CONST_TENSOR(param_t, weight)) {
  FOR_EACH_CHANNEL(c) {
    const global storage_t *x = POINTER(self) + c * rows.row_strides[1];
    const global storage_t *grad = POINTER(grad_output) + c * rows.row_strides[2];
    const compute_t center = POINTER(mean)[c];
    const compute_t inverse = POINTER(inverse_deviation)[c];
    const gradient_sums_t sums = gradient_sums_of(&rows, x, grad, center, 0, pixels);
    if (grad_weight_memory) STORE_PARAM(POINTER(grad_weight), c, sums.product * inverse);
    if (grad_bias_memory) STORE_PARAM(POINTER(grad_bias), c, sums.sum);

    const compute_t scale =
        weight_memory ? inverse * LOAD_PARAM(POINTER(weight), c) : inverse;
    const compute_t shift = shift_of(sums, pixels, scale);
    const compute_t slope = slope_of(sums, pixels, inverse, scale);
    global storage_t *result = POINTER(grad_input) + c * rows.row_strides[0];
    FOR_EACH_RUN(&rows, 0, pixels) {
      const global storage_t *from = x + pixel_offset(&rows, 1, pixel);
      const global storage_t *grad_from = grad + pixel_offset(&rows, 2, pixel);
      global storage_t *to = result + pixel_offset(&rows, 0, pixel);
      TRANSFORM(to,
                VALUES_AT(grad_from) * scale - shift - (VALUES_AT(from) - center) * slope,
                VALUE_AT(grad_from) * scale - shift - (VALUE_AT(from) - center) * slope)
    }
  }
}
