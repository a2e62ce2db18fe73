// The elementwise passes of batch normalisation, forward and backward, once
// each channel's numbers are known. A work-item makes STEPS values of LANES
// elements: of one channel along the innermost pixels or, CHANNELS_INNERMOST, of LANES
// channels at STEPS pixels.

#include "batch_norm.clh"

#ifndef STEPS
#define STEPS 1
#endif
#ifndef TRAIN
#define TRAIN 1
#endif

typedef struct {
  int channel;
  int count;  // lanes inside the tensor
  index_t steps;
#if CHANNELS_INNERMOST
  index_t first;  // pixel
#else
  index_t run;  // of innermost pixels
  int start;    // in the run
  int last;     // where the last step begins, from `start`
#endif
} job_t;

inline job_t job_of(index_t id, const rows_t *rows, index_t pixels) {
  job_t job;
#if CHANNELS_INNERMOST
  const int blocks = (rows->row_size + LANES - 1) / LANES;
  job.channel = (int)(id % blocks) * LANES;
  job.count = min(LANES, rows->row_size - job.channel);
  job.first = id / blocks * STEPS;
  job.steps = min((index_t)STEPS, pixels - job.first);
#else
  const int blocks = (rows->sizes[0] + STEPS * LANES - 1) / (STEPS * LANES);
  const index_t outer = id / blocks;
  job.start = (int)(id - outer * blocks) * (STEPS * LANES);
  job.run = outer / rows->row_size;
  job.channel = (int)(outer - job.run * rows->row_size);
  const int left = min(STEPS * LANES, rows->sizes[0] - job.start);
  job.steps = (left + LANES - 1) / LANES;
  job.count = min(left, LANES);
  job.last = left - job.count;
#endif
  return job;
}

// Steps along a tensor: the offset of the first, from it to the next, between
// lanes. CHANNELS_INNERMOST, pixels of a job may lie in several runs; otherwise the last step
// makes some elements again rather than fewer.
#if CHANNELS_INNERMOST
#define OFFSET(t, base, step) pixel_offset(&rows, t, job.first + (step))
#define LANE_STRIDE(t) rows.row_strides[t]
#define BASE(t) 0
#else
#define OFFSET(t, base, step) \
  (base + min((int)(step) * LANES, job.last) * rows.strides[t * ROWS_RANK])
#define LANE_STRIDE(t) rows.strides[t * ROWS_RANK]
#define BASE(t) (run_offset(&rows, t, job.run) + job.start * rows.strides[t * ROWS_RANK])
#endif

#define LOAD_PART(p, t, base) \
  load_lanes(p, OFFSET(t, base, step), LANE_STRIDE(t), job.count)
#define STORE_PART(p, base, value) \
  store_lanes_nt(p, OFFSET(0, base, step), LANE_STRIDE(0), job.count, value)
#if DENSE
#define IS_WHOLE (job.count == LANES)
#define AT(base) (base + min((int)step * LANES, job.last))
#define LOAD_WHOLE(p, t, base) LOAD_PIXELS(p, AT(base), 1)
#define STORE_WHOLE(p, base, value) store_full_lanes_nt(p + AT(base), value)
#else
#define IS_WHOLE 0
#define LOAD_WHOLE LOAD_PART
#define STORE_WHOLE STORE_PART
#endif

// A work-item takes `tile` jobs.
#define FOR_EACH_JOB                                    \
  const long first_job = (long)get_global_id(0) * tile; \
  for (long id = first_job; id < min(first_job + tile, jobs); ++id)

// The last step comes first: it may make elements of the one before again, and
// what is stored may be what is loaded.
#define TRANSFORM(LOAD_STEP, STORE_STEP, to, to_base) \
  {                                                   \
    index_t step = job.steps - 1;                     \
    const lanes_t last = VALUE(LOAD_STEP);            \
    for (step = 0; step < job.steps - 1; ++step) {    \
      const lanes_t value = VALUE(LOAD_STEP);         \
      STORE_STEP(to, to_base, value);                 \
    }                                                 \
    STORE_STEP(to, to_base, last);                    \
  }

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_transform(
    ROWS,
    const index_t pixels,
    const long jobs,
    const int tile,
    const compute_t lower,
    const compute_t upper,
    TRANSFORM_TENSORS) {
  COPY_ROWS
  FOR_EACH_JOB {
    const job_t job = job_of((index_t)id, &rows, pixels);
    const int c = job.channel;
    const channels_t center = load_statistics(POINTER(mean), c, job.count);
    channels_t scale = load_statistics(POINTER(inverse_deviation), c, job.count);
    if (weight_memory) scale *= load_params(POINTER(weight), c, job.count);
    channels_t shift = 0;
    if (bias_memory) shift = load_params(POINTER(bias), c, job.count);
    const global storage_t *x = POINTER(self) + c * rows.row_strides[1];
    global storage_t *y = POINTER(out) + c * rows.row_strides[0];
    const index_t x_base = BASE(1);
    const index_t y_base = BASE(0);
#define VALUE(LOAD_STEP) \
  lanes_t_within((LOAD_STEP(x, 1, x_base) - center) * scale + shift, lower, upper)
    if (IS_WHOLE)
      TRANSFORM(LOAD_WHOLE, STORE_WHOLE, y, y_base)
    else
      TRANSFORM(LOAD_PART, STORE_PART, y, y_base)
#undef VALUE
  }
}

// grad_input: scaled grad_output less what changes with the statistics, which
// evaluation has not.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_transform_backward(
    ROWS,
    const index_t pixels,
    const long jobs,
    const int tile,
    TRANSFORM_BACKWARD_TENSORS) {
  COPY_ROWS
  FOR_EACH_JOB {
    const job_t job = job_of((index_t)id, &rows, pixels);
    const int c = job.channel;
    channels_t scale = load_statistics(POINTER(inverse_deviation), c, job.count);
    if (weight_memory) scale *= load_params(POINTER(weight), c, job.count);
#if TRAIN
    const channels_t center = load_statistics(POINTER(mean), c, job.count);
    const channels_t shift = load_statistics(POINTER(shifts), c, job.count);
    const channels_t slope = load_statistics(POINTER(slopes), c, job.count);
    const global storage_t *x = POINTER(self) + c * rows.row_strides[1];
    const index_t x_base = BASE(1);
#endif
    const global storage_t *grad = POINTER(grad_output) + c * rows.row_strides[2];
    global storage_t *result = POINTER(grad_input) + c * rows.row_strides[0];
    const index_t grad_base = BASE(2);
    const index_t result_base = BASE(0);
#if TRAIN
#define VALUE(LOAD_STEP)                          \
  LOAD_STEP(grad, 2, grad_base) * scale - shift - \
      (LOAD_STEP(x, 1, x_base) - center) * slope
#else
#define VALUE(LOAD_STEP) LOAD_STEP(grad, 2, grad_base) * scale
#endif
    if (IS_WHOLE)
      TRANSFORM(LOAD_WHOLE, STORE_WHOLE, result, result_base)
    else
      TRANSFORM(LOAD_PART, STORE_PART, result, result_base)
  }
}
