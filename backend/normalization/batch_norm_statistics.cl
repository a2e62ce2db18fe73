// Mean and sum of squared residuals of each channel, for batch normalisation.
//
// A job takes `chunk` pixels, and the jobs of one channel are joined. The order
// of everything is fixed.

#include "batch_norm.clh"
#include "batch_norm_sums.clh"

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_partials(
    ROWS,
    const index_t pixels,
    const index_t chunk,
    const int jobs,
    MOMENTS,
    CONST_TENSOR(storage_t, self)) {
#if !IS_JOB_OF_ITEM
  local compute_t shared[WG_SIZE];
#endif
  PARTIAL_JOB
  const global storage_t *x = POINTER(self) + c * rows.row_strides[1];
#if LANES > 1 && !CHANNELS_INNERMOST
  STORE_MOMENTS(job.place, c, 1, moments_of(&rows, x, job.first, job.last))
#else
  const compute_t scale = (compute_t)1 / (compute_t)(job.last - job.first);
#if CHANNELS_INNERMOST
  const index_t step = rows.strides[ROWS_RANK];
  const index_t lane = rows.row_strides[1];
  lanes_t sum = 0;
  FOR_EACH_RUN(&rows, job.first, job.last) {
    const index_t offset = pixel_offset(&rows, 1, pixel);
    for (index_t i = 0; i < length; ++i)
      sum += load_lanes(x, offset + i * step, lane, job.count);
  }
  const lanes_t mean = sum * scale;
  lanes_t residual = 0;
  lanes_t lost = 0;
  lanes_t square = 0;
  FOR_EACH_RUN(&rows, job.first, job.last) {
    const index_t offset = pixel_offset(&rows, 1, pixel);
    for (index_t i = 0; i < length; ++i) {
      const lanes_t d = load_lanes(x, offset + i * step, lane, job.count) - mean;
      KAHAN_ADD(lanes_t, residual, lost, d)
      square += d * d;
    }
  }
  STORE_MOMENTS(job.place, c, job.count, moments_about(mean, residual, square, scale))
#else
  const index_t item = (index_t)get_local_id(0);
  compute_t sum = 0;
  for (index_t p = job.first + item; p < job.last; p += WG_SIZE)
    sum += LOAD(x, pixel_offset(&rows, 1, p));
  const compute_t mean = group_sum(sum, shared) * scale;
  compute_t residual = 0;
  compute_t square = 0;
  for (index_t p = job.first + item; p < job.last; p += WG_SIZE) {
    const compute_t d = LOAD(x, pixel_offset(&rows, 1, p)) - mean;
    residual += d;
    square += d * d;
  }
  residual = group_sum(residual, shared);
  square = group_sum(square, shared);
  if (item == 0) {
    STORE_MOMENTS(job.place, c, 1, moments_about(mean, residual, square, scale))
  }
#endif
#endif
}

// A work-group joins the chunks of LANES channels: the batch's mean and inverse
// standard deviation, and the running statistics. Where nothing deviates and epsilon
// is 0, the inverse is infinite, or 0 with `zero_inverse`.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_finish(
    const int channels,
    const long pixels,
    const long chunk,
    const int chunks,
    const compute_t epsilon,
    const int zero_inverse,
    const compute_t momentum,
    const long running_mean_stride,
    const long running_var_stride,
    TENSOR(compute_t, batch_mean),
    TENSOR(compute_t, inverse_deviation),
    TENSOR(param_t, running_mean),
    TENSOR(param_t, running_var),
    CONST_TENSOR(compute_t, means),
    CONST_TENSOR(compute_t, means_lost),
    CONST_TENSOR(compute_t, squares)) {
  local compute_t counts[WG_SIZE];
  local moments_t shared[WG_SIZE];
  const int c = (int)get_group_id(0) * LANES;
  const int held = min(LANES, channels - c);
  const int item = get_local_id(0);
  compute_t count = 0;
  moments_t moments = {0, 0, 0, 0};
  for (int i = item; i < chunks; i += WG_SIZE) {
    const long place = (long)i * channels;
    const moments_t more = {
        load_statistics(POINTER(means) + place, c, held),
        load_statistics(POINTER(means_lost) + place, c, held),
        load_statistics(POINTER(squares) + place, c, held), 0};
    count = join_moments(&moments, count, more, (compute_t)min(chunk, pixels - i * chunk));
  }
  counts[item] = count;
  shared[item] = moments;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_size = WG_SIZE / 2; half_size > 0; half_size /= 2) {
    if (item < half_size && counts[item + half_size] > 0) {
      count = join_moments(
          &moments, count, shared[item + half_size], counts[item + half_size]);
      counts[item] = count;
      shared[item] = moments;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (item == 0) {
    const channels_t inverse = zero_inverse
                                   ? inverse_or_zero(moments, pixels, epsilon)
                                   : inverse_deviation_of(moments, pixels, epsilon);
    store_statistics(POINTER(batch_mean), c, held, moments.mean);
    store_statistics(POINTER(inverse_deviation), c, held, inverse);
    UPDATE_RUNNING(c, held, moments, pixels)
  }
}

// Evaluation: the statistics are the running ones.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_running(
    const int channels,
    const compute_t epsilon,
    const long running_mean_stride,
    const long running_var_stride,
    TENSOR(compute_t, mean),
    TENSOR(compute_t, inverse_deviation),
    CONST_TENSOR(param_t, running_mean),
    CONST_TENSOR(param_t, running_var)) {
  const int c = (int)get_global_id(0);
  if (c >= channels) return;
  POINTER(mean)[c] = LOAD_PARAM(POINTER(running_mean), c * running_mean_stride);
  const compute_t variance = LOAD_PARAM(POINTER(running_var), c * running_var_stride);
  POINTER(inverse_deviation)[c] = (compute_t)1 / sqrt(variance + epsilon);
}
