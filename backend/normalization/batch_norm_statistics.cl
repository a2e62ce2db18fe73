// Mean and sum of squared residuals of each channel, for batch normalisation.
//
// A job takes `chunk` pixels: it finds their mean, then, from cache, their
// squared residuals, corrected for the mean's rounding. Jobs of one channel
// are joined by the pairwise update of Chan, Golub and LeVeque (1979). The
// order of everything is fixed.

#include "batch_norm.clh"

// Partial results lie as [chunk][channel].

#if ACROSS || LANES > 1

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_partials(
    const rows_t rows,
    const index_t pixels,
    const index_t chunk,
    const int jobs,
    TENSOR(compute_t, means),
    TENSOR(compute_t, squares),
    CONST_TENSOR(storage_t, self)) {
  const int job = (int)get_global_id(0);
  if (job >= jobs) return;
  const int channels = rows.row_size;
#if ACROSS
  const int blocks = (channels + LANES - 1) / LANES;
  const int c = job % blocks * LANES;
  const int count = min(LANES, channels - c);
  const index_t number = job / blocks;
#else
  const int c = job % channels;
  const int count = 1;
  const index_t number = job / channels;
#endif
  const index_t first = number * chunk;
  const index_t last = min(first + chunk, pixels);
  const global storage_t *x = POINTER(self) + c * rows.row_strides[1];
  const index_t step = rows.strides[1][0];
  const compute_t scale = (compute_t)1 / (compute_t)(last - first);

#if ACROSS
  const index_t lane = rows.row_strides[1];
  lanes_t sum = 0;
  FOR_EACH_RUN(first, last) {
    const index_t offset = pixel_offset(&rows, 1, pixel);
    for (index_t i = 0; i < length; ++i)
      sum += load_lanes(x, offset + i * step, lane, count);
  }
  const lanes_t mean = sum * scale;
  lanes_t residual = 0;
  lanes_t lost = 0;
  lanes_t square = 0;
  FOR_EACH_RUN(first, last) {
    const index_t offset = pixel_offset(&rows, 1, pixel);
    for (index_t i = 0; i < length; ++i) {
      const lanes_t d = load_lanes(x, offset + i * step, lane, count) - mean;
      KAHAN_ADD(lanes_t, residual, lost, d)
      square += d * d;
    }
  }
#else
  lanes_t sum_lanes = 0;
  compute_t sum = 0;
  FOR_EACH_RUN(first, last) {
    const index_t offset = pixel_offset(&rows, 1, pixel);
    const index_t whole = length / LANES * LANES;
    for (index_t i = 0; i < whole; i += LANES)
      sum_lanes += LOAD_PIXELS(x, offset + i * step, step);
    for (index_t i = whole; i < length; ++i) sum += LOAD(x, offset + i * step);
  }
  const compute_t mean = (sum + LANES_SUM(sum_lanes)) * scale;
  lanes_t residual_lanes = 0;
  lanes_t lost_lanes = 0;
  lanes_t square_lanes = 0;
  compute_t residual = 0;
  compute_t lost = 0;
  compute_t square = 0;
  FOR_EACH_RUN(first, last) {
    const index_t offset = pixel_offset(&rows, 1, pixel);
    const index_t whole = length / LANES * LANES;
    for (index_t i = 0; i < whole; i += LANES) {
      const lanes_t d = LOAD_PIXELS(x, offset + i * step, step) - mean;
      KAHAN_ADD(lanes_t, residual_lanes, lost_lanes, d)
      square_lanes += d * d;
    }
    for (index_t i = whole; i < length; ++i) {
      const compute_t d = LOAD(x, offset + i * step) - mean;
      KAHAN_ADD(compute_t, residual, lost, d)
      square += d * d;
    }
  }
  residual += LANES_SUM(residual_lanes);
  square += LANES_SUM(square_lanes);
#endif
  const channels_t correction = residual * scale;
  const index_t place = number * channels;
  store_statistics(POINTER(means) + place, c, count, mean + correction);
  store_statistics(
      POINTER(squares) + place, c, count, square - residual * correction);
}

#else

// A work-group a job, its work-items side by side in memory.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_partials(
    const rows_t rows,
    const index_t pixels,
    const index_t chunk,
    const int jobs,
    TENSOR(compute_t, means),
    TENSOR(compute_t, squares),
    CONST_TENSOR(storage_t, self)) {
  local compute_t shared[WG_SIZE];
  const int job = (int)get_group_id(0);
  const int channels = rows.row_size;
  const int c = job % channels;
  const index_t number = job / channels;
  const index_t first = number * chunk;
  const index_t last = min(first + chunk, pixels);
  const global storage_t *x = POINTER(self) + c * rows.row_strides[1];
  const compute_t scale = (compute_t)1 / (compute_t)(last - first);
  compute_t sum = 0;
  for (index_t p = first + (index_t)get_local_id(0); p < last; p += WG_SIZE)
    sum += LOAD(x, pixel_offset(&rows, 1, p));
  const compute_t mean = group_sum(sum, shared) * scale;
  compute_t residual = 0;
  compute_t square = 0;
  for (index_t p = first + (index_t)get_local_id(0); p < last; p += WG_SIZE) {
    const compute_t d = LOAD(x, pixel_offset(&rows, 1, p)) - mean;
    residual += d;
    square += d * d;
  }
  residual = group_sum(residual, shared);
  square = group_sum(square, shared);
  if (get_local_id(0) == 0) {
    const compute_t correction = residual * scale;
    POINTER(means)[number * channels + c] = mean + correction;
    POINTER(squares)[number * channels + c] = square - residual * correction;
  }
}

#endif

// A work-group joins the chunks of a channel: the batch's mean and inverse
// standard deviation, and the running statistics.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_finish(
    const long pixels,
    const long chunk,
    const int chunks,
    const compute_t epsilon,
    const compute_t momentum,
    const long running_mean_stride,
    const long running_var_stride,
    TENSOR(compute_t, batch_mean),
    TENSOR(compute_t, inverse_deviation),
    TENSOR(param_t, running_mean),
    TENSOR(param_t, running_var),
    CONST_TENSOR(compute_t, means),
    CONST_TENSOR(compute_t, squares)) {
  local compute_t counts[WG_SIZE];
  local compute_t shared_means[WG_SIZE];
  local compute_t shared_squares[WG_SIZE];
  const int c = (int)get_group_id(0);
  const int channels = (int)get_num_groups(0);
  const int item = get_local_id(0);
  compute_t count = 0;
  compute_t mean = 0;
  compute_t square = 0;
  for (int i = item; i < chunks; i += WG_SIZE) {
    const compute_t more = (compute_t)min(chunk, pixels - i * chunk);
    const compute_t delta = POINTER(means)[(long)i * channels + c] - mean;
    const compute_t total = count + more;
    mean += delta * (more / total);
    square += POINTER(squares)[(long)i * channels + c] + delta * delta * (count * more / total);
    count = total;
  }
  counts[item] = count;
  shared_means[item] = mean;
  shared_squares[item] = square;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_size = WG_SIZE / 2; half_size > 0; half_size /= 2) {
    if (item < half_size && counts[item + half_size] > 0) {
      const compute_t more = counts[item + half_size];
      const compute_t delta = shared_means[item + half_size] - shared_means[item];
      const compute_t total = counts[item] + more;
      shared_means[item] += delta * (more / total);
      shared_squares[item] += shared_squares[item + half_size] +
                              delta * delta * (counts[item] * more / total);
      counts[item] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (item == 0) {
    mean = shared_means[0];
    square = shared_squares[0];
    POINTER(batch_mean)[c] = mean;
    POINTER(inverse_deviation)[c] =
        (compute_t)1 / sqrt(square / (compute_t)pixels + epsilon);
    if (running_mean_memory) {
      const long i = c * running_mean_stride;
      const compute_t old = LOAD_PARAM(POINTER(running_mean), i);
      STORE_PARAM(POINTER(running_mean), i, momentum * mean + (1 - momentum) * old);
    }
    if (running_var_memory) {
      const long i = c * running_var_stride;
      const compute_t old = LOAD_PARAM(POINTER(running_var), i);
      const compute_t unbiased = square / (compute_t)(pixels - 1);
      STORE_PARAM(POINTER(running_var), i, momentum * unbiased + (1 - momentum) * old);
    }
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
