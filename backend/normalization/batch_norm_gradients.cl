// Of each channel, the sums of grad_output and of grad_output times the
// centered input, from which batch normalisation's gradients follow. Jobs of
// `chunk` pixels leave partial sums, as [chunk][channel], which a work-group of
// LANES channels adds up. The order of everything is fixed.

#include "batch_norm.clh"
#include "batch_norm_sums.clh"

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_gradient_partials(
    ROWS,
    const index_t pixels,
    const index_t chunk,
    const int jobs,
    TENSOR(compute_t, sums),
    TENSOR(compute_t, products),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(storage_t, grad_output),
    CONST_TENSOR(compute_t, means)) {
#if !IS_JOB_OF_ITEM
  local compute_t shared[WG_SIZE];
#endif
  PARTIAL_JOB
  const global storage_t *x = POINTER(self) + c * rows.row_strides[1];
  const global storage_t *grad = POINTER(grad_output) + c * rows.row_strides[2];
  const channels_t mean = load_statistics(POINTER(means), c, job.count);
#if CHANNELS_INNERMOST
  const index_t x_step = rows.strides[ROWS_RANK];
  const index_t grad_step = rows.strides[2 * ROWS_RANK];
  lanes_t sum = 0;
  lanes_t sum_lost = 0;
  lanes_t product = 0;
  lanes_t product_lost = 0;
  FOR_EACH_RUN(&rows, job.first, job.last) {
    const index_t x_offset = pixel_offset(&rows, 1, pixel);
    const index_t grad_offset = pixel_offset(&rows, 2, pixel);
    for (index_t i = 0; i < length; ++i) {
      const lanes_t g =
          load_lanes(grad, grad_offset + i * grad_step, rows.row_strides[2], job.count);
      const lanes_t d =
          load_lanes(x, x_offset + i * x_step, rows.row_strides[1], job.count) - mean;
      KAHAN_ADD(lanes_t, sum, sum_lost, g)
      KAHAN_ADD(lanes_t, product, product_lost, g * d)
    }
  }
  store_statistics(POINTER(sums) + job.place, c, job.count, sum);
  store_statistics(POINTER(products) + job.place, c, job.count, product);
#elif LANES > 1
  const gradient_sums_t part =
      gradient_sums_of(&rows, x, grad, mean, job.first, job.last);
  POINTER(sums)[job.place + c] = part.sum;
  POINTER(products)[job.place + c] = part.product;
#else
  const index_t item = (index_t)get_local_id(0);
  compute_t sum = 0;
  compute_t product = 0;
  for (index_t p = job.first + item; p < job.last; p += WG_SIZE) {
    const compute_t g = LOAD(grad, pixel_offset(&rows, 2, p));
    sum += g;
    product += g * (LOAD(x, pixel_offset(&rows, 1, p)) - mean);
  }
  sum = group_sum(sum, shared);
  product = group_sum(product, shared);
  if (item == 0) {
    POINTER(sums)[job.place + c] = sum;
    POINTER(products)[job.place + c] = product;
  }
#endif
}

// grad_weight and grad_bias, and what grad_input loses.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_gradient_finish(
    const int channels,
    const long pixels,
    const int chunks,
    TENSOR(compute_t, shifts),
    TENSOR(compute_t, slopes),
    TENSOR(param_t, grad_weight),
    TENSOR(param_t, grad_bias),
    CONST_TENSOR(compute_t, sums),
    CONST_TENSOR(compute_t, products),
    CONST_TENSOR(compute_t, inverse_deviation),
    CONST_TENSOR(param_t, weight)) {
  local channels_t shared[WG_SIZE];
  const int c = (int)get_group_id(0) * LANES;
  const int held = min(LANES, channels - c);
  channels_t sum = 0;
  channels_t sum_lost = 0;
  channels_t product = 0;
  channels_t product_lost = 0;
  for (int i = get_local_id(0); i < chunks; i += WG_SIZE) {
    const long place = (long)i * channels;
    const channels_t more = load_statistics(POINTER(sums) + place, c, held);
    const channels_t product_more = load_statistics(POINTER(products) + place, c, held);
    KAHAN_ADD(channels_t, sum, sum_lost, more)
    KAHAN_ADD(channels_t, product, product_lost, product_more)
  }
  sum = group_sum(sum, shared);
  product = group_sum(product, shared);
  if (get_local_id(0) == 0) {
    const channels_t inverse = load_statistics(POINTER(inverse_deviation), c, held);
    channels_t scale = inverse;
    if (weight_memory) scale *= load_params(POINTER(weight), c, held);
    const gradient_sums_t totals = {sum, product};
    store_statistics(POINTER(shifts), c, held, shift_of(totals, pixels, scale));
    store_statistics(POINTER(slopes), c, held, slope_of(totals, pixels, inverse, scale));
    if (grad_weight_memory) store_params(POINTER(grad_weight), c, held, product * inverse);
    if (grad_bias_memory) store_params(POINTER(grad_bias), c, held, sum);
  }
}
