// Batch normalisation of whole channels, on a CPU. Of those that a cache holds, a
// work-item reads a channel from memory once, for its sums, and transforms it from
// cache; with running statistics any will do. The order of everything is fixed.
//
// Its channels of one image lie side by side, so that a work-item which knows
// their numbers takes image after image.

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
                lanes_t_within(                                                        \
                    (VALUES_AT(from) - center) * scale + shift, lower, upper),         \
                compute_t_within(                                                      \
                    (VALUE_AT(from) - center) * scale + shift, lower, upper))          \
    }                                                                                  \
  }

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_channels(
    ROWS,
    const index_t pixels,
    const int tile,
    const compute_t epsilon,
    const compute_t momentum,
    const compute_t lower,
    const compute_t upper,
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
  COPY_ROWS
  FOR_EACH_CHANNEL(c) {
    const global storage_t *x = POINTER(self) + c * rows.row_strides[1];
    const moments_t moments = moments_of_channel(&rows, x, pixels);
    const compute_t inverse = inverse_or_zero(moments, pixels, epsilon);
    POINTER(batch_mean)[c] = moments.mean;
    POINTER(inverse_deviation)[c] = inverse;
    UPDATE_RUNNING(c, 1, moments, pixels)

    TRANSFORM_CHANNEL(moments.mean, inverse)
  }
}

// Channels of a work-item, at most, as the host knows.
#ifndef TILE
#define TILE 64
#endif

// Where the first channel of a run begins in tensor `t`.
#define RUN_OF(p, t) (POINTER(p) + run_offset(&rows, t, run) + first_channel * rows.row_strides[t])

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_channels_running(
    ROWS,
    const index_t pixels,
    const int tile,
    const compute_t epsilon,
    const compute_t lower,
    const compute_t upper,
    const long running_mean_stride,
    const long running_var_stride,
    TENSOR(storage_t, out),
    CONST_TENSOR(param_t, running_mean),
    CONST_TENSOR(param_t, running_var),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(param_t, weight),
    CONST_TENSOR(param_t, bias)) {
  COPY_ROWS
  const int first_channel = (int)get_global_id(0) * tile;
  const int channels = min(tile, rows.row_size - first_channel);
  const index_t length = rows.sizes[0];
  const index_t runs = pixels / length;
  compute_t centers[TILE];
  compute_t scales[TILE];
  compute_t shifts[TILE];
  for (int i = 0; i < channels; ++i) {
    const int c = first_channel + i;
    const compute_t variance = LOAD_PARAM(POINTER(running_var), c * running_var_stride);
    compute_t scale = (compute_t)1 / sqrt(variance + epsilon);
    if (weight_memory) scale *= LOAD_PARAM(POINTER(weight), c);
    centers[i] = LOAD_PARAM(POINTER(running_mean), c * running_mean_stride);
    scales[i] = scale;
    shifts[i] = bias_memory ? LOAD_PARAM(POINTER(bias), c) : 0;
  }
  for (index_t run = 0; run < runs; ++run) {
    const global storage_t *from = RUN_OF(self, 1);
    global storage_t *to = RUN_OF(out, 0);
    for (int c = 0; c < channels; ++c) {
      const compute_t center = centers[c];
      const compute_t scale = scales[c];
      const compute_t shift = shifts[c];
      TRANSFORM(to,
                lanes_t_within((VALUES_AT(from) - center) * scale + shift, lower, upper),
                compute_t_within((VALUE_AT(from) - center) * scale + shift, lower, upper))
      from += rows.row_strides[1];
      to += rows.row_strides[0];
    }
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_channels_backward(
    ROWS,
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
  COPY_ROWS
  const int first_channel = (int)get_global_id(0) * tile;
  const int channels = min(tile, rows.row_size - first_channel);
  const index_t length = rows.sizes[0];
  const index_t runs = pixels / length;
  gradient_lanes_t lanes[TILE];
  compute_t centers[TILE];
  compute_t scales[TILE];
  compute_t shifts[TILE];
  compute_t slopes[TILE];
  for (int c = 0; c < channels; ++c) {
    const gradient_lanes_t zero = {0, 0, 0, 0, 0, 0, 0, 0};
    lanes[c] = zero;
    centers[c] = POINTER(mean)[first_channel + c];
  }
  for (index_t run = 0; run < runs; ++run) {
    const global storage_t *from = RUN_OF(self, 1);
    const global storage_t *grad_from = RUN_OF(grad_output, 2);
    for (int c = 0; c < channels; ++c) {
      const compute_t center = centers[c];
      gradient_lanes_t sums = lanes[c];
#define D(i) (CONCAT(load_lanes_, DTYPE)(from + (i)) - center)
#define G(i) CONCAT(load_lanes_, DTYPE)(grad_from + (i))
#define ONE_D(i) (LOAD(from, i) - center)
#define ONE_G(i) LOAD(grad_from, i)
      ADD_GRADIENTS(sums, G, D, ONE_G, ONE_D)
#undef D
#undef G
#undef ONE_D
#undef ONE_G
      lanes[c] = sums;
      from += rows.row_strides[1];
      grad_from += rows.row_strides[2];
    }
  }
  for (int i = 0; i < channels; ++i) {
    const int c = first_channel + i;
    const compute_t inverse = POINTER(inverse_deviation)[c];
    const gradient_sums_t sums = gradient_sums_of_lanes(lanes[i]);
    if (grad_weight_memory) STORE_PARAM(POINTER(grad_weight), c, sums.product * inverse);
    if (grad_bias_memory) STORE_PARAM(POINTER(grad_bias), c, sums.sum);
    const compute_t scale =
        weight_memory ? inverse * LOAD_PARAM(POINTER(weight), c) : inverse;
    scales[i] = scale;
    shifts[i] = shift_of(sums, pixels, scale);
    slopes[i] = slope_of(sums, pixels, inverse, scale);
  }
  for (index_t run = 0; run < runs; ++run) {
    const global storage_t *from = RUN_OF(self, 1);
    const global storage_t *grad_from = RUN_OF(grad_output, 2);
    global storage_t *to = RUN_OF(grad_input, 0);
    for (int c = 0; c < channels; ++c) {
      const compute_t center = centers[c];
      const compute_t scale = scales[c];
      const compute_t shift = shifts[c];
      const compute_t slope = slopes[c];
      TRANSFORM(to,
                VALUES_AT(grad_from) * scale - shift - (VALUES_AT(from) - center) * slope,
                VALUE_AT(grad_from) * scale - shift - (VALUE_AT(from) - center) * slope)
      from += rows.row_strides[1];
      grad_from += rows.row_strides[2];
      to += rows.row_strides[0];
    }
  }
}
