// Batch normalisation on CPUs where channels are innermost: its four passes by
// lines. A work-item takes `chunk` pixels of up to CHANNELS channels and reads
// each pixel as one run of memory, LANES channels at a time, with a channel's
// numbers in private arrays.

#define CHANNELS_INNERMOST 1
#include "batch_norm.clh"
#include "batch_norm_sums.clh"

#ifndef CHANNELS
#define CHANNELS 512
#endif
#define VECTORS (CHANNELS / LANES)
// Pixels whose statistics are found from cache, at least: one part of channels
// of so many elements.
#define TILE 8192

typedef struct {
  int channel;
  int vectors;
  int last;  // lanes of the last vector
  index_t number;
  index_t first;  // pixel
  index_t end;
} job_t;

inline job_t job_of(const rows_t *rows, index_t pixels, index_t chunk) {
  const index_t id = (index_t)get_global_id(0);
  const int parts = (rows->row_size + CHANNELS - 1) / CHANNELS;
  job_t job;
  job.number = id / parts;
  job.channel = (int)(id - job.number * parts) * CHANNELS;
  const int channels = min(CHANNELS, rows->row_size - job.channel);
  job.vectors = (channels + LANES - 1) / LANES;
  job.last = channels - (job.vectors - 1) * LANES;
  job.first = job.number * chunk;
  job.end = min(job.first + chunk, pixels);
  return job;
}

// Full vectors side by side, known to the compiler: PoCL tests for each.
#if DENSE
#define COUNT(v) LANES
#define LOAD_VECTOR(pixel, t, v) CONCAT(load_lanes_, DTYPE)((pixel) + (v) * LANES)
#define STORE_VECTOR(pixel, t, v, value)                 \
  {                                                      \
    const lanes_t result_ = value;                       \
    store_full_lanes_nt((pixel) + (v) * LANES, result_); \
  }
#else
#define COUNT(v) ((v) + 1 < job.vectors ? LANES : job.last)
#define LOAD_VECTOR(pixel, t, v) \
  load_lanes(pixel, (v) * LANES * rows.row_strides[t], rows.row_strides[t], COUNT(v))
#define STORE_VECTOR(pixel, t, v, value) \
  store_lanes_nt(                        \
      pixel, (v) * LANES * rows.row_strides[t], rows.row_strides[t], COUNT(v), value)
#endif

#define JOB                                       \
  const job_t job = job_of(&rows, pixels, chunk); \
  if (job.first >= job.end) return;               \
  const int channels = rows.row_size;
#define FOR_EACH_VECTOR for (int v = 0; v < job.vectors; ++v)
#define CHANNEL(v) (job.channel + (v) * LANES)
#define PIXEL(name, t, p) \
  (POINTER(name) + job.channel * rows.row_strides[t] + pixel_offset(&rows, t, p))
#define LOAD_STATISTICS(name, v) load_statistics(POINTER(name), CHANNEL(v), COUNT(v))
#define LOAD_PARAMS(name, v) load_params(POINTER(name), CHANNEL(v), COUNT(v))

// Sums wait in memory: four pixels are added up before they are moved. A pixel
// that is left is taken alone.
#define TOGETHER 4
#define FOR_EACH_PIXEL(first, end, TAKE)                        \
  {                                                             \
    index_t p = first;                                          \
    for (; p + TOGETHER <= (end); p += TOGETHER) TAKE(TOGETHER) \
    for (; p < (end); ++p) TAKE(1)                              \
  }

#define PARAMETERS const rows_t rows, const index_t pixels, const index_t chunk

#define PIXELS(name, t, count)                 \
  const global storage_t *name##_pixel[count]; \
  for (int i = 0; i < count; ++i) name##_pixel[i] = PIXEL(name, t, p + i);

#define ADD_PIXELS(count)                                                      \
  {                                                                            \
    PIXELS(self, 1, count)                                                     \
    FOR_EACH_VECTOR {                                                          \
      lanes_t sum = 0;                                                         \
      for (int i = 0; i < count; ++i) sum += LOAD_VECTOR(self_pixel[i], 1, v); \
      tile_mean[v] += sum;                                                     \
    }                                                                          \
  }
#define ADD_RESIDUALS(count)                                               \
  {                                                                        \
    PIXELS(self, 1, count)                                                 \
    FOR_EACH_VECTOR {                                                      \
      const lanes_t mean_of_tile = tile_mean[v];                           \
      lanes_t sum = 0;                                                     \
      lanes_t squared = 0;                                                 \
      for (int i = 0; i < count; ++i) {                                    \
        const lanes_t d = LOAD_VECTOR(self_pixel[i], 1, v) - mean_of_tile; \
        sum += d;                                                          \
        squared += d * d;                                                  \
      }                                                                    \
      KAHAN_ADD(lanes_t, residual[v], lost[v], sum)                        \
      tile_square[v] += squared;                                           \
    }                                                                      \
  }

// Mean and squared residuals of a tile, then joined to those of the job.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void batch_norm_partials_lines(
    PARAMETERS,
    MOMENTS,
    CONST_TENSOR(storage_t, self)) {
  JOB
  moments_t moments[VECTORS];
  lanes_t tile_mean[VECTORS];
  lanes_t residual[VECTORS];
  lanes_t lost[VECTORS];
  lanes_t tile_square[VECTORS];
  const index_t tile = max(16, TILE / (job.vectors * LANES));
  for (index_t first = job.first; first < job.end; first += tile) {
    const index_t end = min(first + tile, job.end);
    const compute_t scale = (compute_t)1 / (compute_t)(end - first);
    FOR_EACH_VECTOR tile_mean[v] = 0;
    FOR_EACH_PIXEL(first, end, ADD_PIXELS)
    FOR_EACH_VECTOR {
      tile_mean[v] *= scale;
      residual[v] = lost[v] = tile_square[v] = 0;
    }
    FOR_EACH_PIXEL(first, end, ADD_RESIDUALS)
    const compute_t before = (compute_t)(first - job.first);
    const compute_t more = (compute_t)(end - first);
    FOR_EACH_VECTOR {
      join_moments(&moments[v], before,
                   moments_about(tile_mean[v], residual[v], tile_square[v], scale), more);
    }
  }
  const index_t place = job.number * channels;
  FOR_EACH_VECTOR STORE_MOMENTS(place, CHANNEL(v), COUNT(v), moments[v])
}

#define ADD_GRADIENTS(count)                                           \
  {                                                                    \
    PIXELS(self, 1, count)                                             \
    PIXELS(grad_output, 2, count)                                      \
    FOR_EACH_VECTOR {                                                  \
      const lanes_t center = mean[v];                                  \
      lanes_t added = 0;                                               \
      lanes_t multiplied = 0;                                          \
      for (int i = 0; i < count; ++i) {                                \
        const lanes_t g = LOAD_VECTOR(grad_output_pixel[i], 2, v);     \
        added += g;                                                    \
        multiplied += g * (LOAD_VECTOR(self_pixel[i], 1, v) - center); \
      }                                                                \
      KAHAN_ADD(lanes_t, sum[v], sum_lost[v], added)                   \
      KAHAN_ADD(lanes_t, product[v], product_lost[v], multiplied)      \
    }                                                                  \
  }

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void batch_norm_gradient_partials_lines(
    PARAMETERS,
    TENSOR(compute_t, sums),
    TENSOR(compute_t, products),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(storage_t, grad_output),
    CONST_TENSOR(compute_t, means)) {
  JOB
  lanes_t mean[VECTORS];
  lanes_t sum[VECTORS];
  lanes_t sum_lost[VECTORS];
  lanes_t product[VECTORS];
  lanes_t product_lost[VECTORS];
  FOR_EACH_VECTOR {
    mean[v] = LOAD_STATISTICS(means, v);
    sum[v] = sum_lost[v] = product[v] = product_lost[v] = 0;
  }
  FOR_EACH_PIXEL(job.first, job.end, ADD_GRADIENTS)
  const index_t place = job.number * channels;
  FOR_EACH_VECTOR {
    store_statistics(POINTER(sums) + place, CHANNEL(v), COUNT(v), sum[v]);
    store_statistics(POINTER(products) + place, CHANNEL(v), COUNT(v), product[v]);
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void batch_norm_transform_lines(
    PARAMETERS,
    const compute_t lower,
    const compute_t upper,
    TRANSFORM_TENSORS) {
  JOB
  lanes_t center[VECTORS];
  lanes_t scale[VECTORS];
  lanes_t shift[VECTORS];
  FOR_EACH_VECTOR {
    center[v] = LOAD_STATISTICS(mean, v);
    scale[v] = LOAD_STATISTICS(inverse_deviation, v);
    if (weight_memory) scale[v] *= LOAD_PARAMS(weight, v);
    shift[v] = bias_memory ? LOAD_PARAMS(bias, v) : (lanes_t)0;
  }
  for (index_t p = job.first; p < job.end; ++p) {
    const global storage_t *x = PIXEL(self, 1, p);
    global storage_t *y = PIXEL(out, 0, p);
    FOR_EACH_VECTOR STORE_VECTOR(
        y,
        0,
        v,
        lanes_t_within(
            (LOAD_VECTOR(x, 1, v) - center[v]) * scale[v] + shift[v], lower, upper));
  }
}

// grad_input: scaled grad_output less what changes with the statistics, which
// evaluation has not.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void batch_norm_transform_backward_lines(
    PARAMETERS,
    TRANSFORM_BACKWARD_TENSORS) {
  JOB
  lanes_t scale[VECTORS];
  FOR_EACH_VECTOR {
    scale[v] = LOAD_STATISTICS(inverse_deviation, v);
    if (weight_memory) scale[v] *= LOAD_PARAMS(weight, v);
  }
#if TRAIN
  lanes_t center[VECTORS];
  lanes_t shift[VECTORS];
  lanes_t slope[VECTORS];
  FOR_EACH_VECTOR {
    center[v] = LOAD_STATISTICS(mean, v);
    shift[v] = LOAD_STATISTICS(shifts, v);
    slope[v] = LOAD_STATISTICS(slopes, v);
  }
#endif
  for (index_t p = job.first; p < job.end; ++p) {
    const global storage_t *grad = PIXEL(grad_output, 2, p);
    global storage_t *result = PIXEL(grad_input, 0, p);
#if TRAIN
    const global storage_t *x = PIXEL(self, 1, p);
    FOR_EACH_VECTOR STORE_VECTOR(
        result,
        0,
        v,
        LOAD_VECTOR(grad, 2, v) * scale[v] - shift[v] -
            (LOAD_VECTOR(x, 1, v) - center[v]) * slope[v]);
#else
    FOR_EACH_VECTOR STORE_VECTOR(result, 0, v, LOAD_VECTOR(grad, 2, v) * scale[v]);
#endif
  }
}
