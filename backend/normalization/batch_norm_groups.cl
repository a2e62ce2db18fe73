// Batch normalisation and its gradients for GPUs, of tensors whose pixels (all
// dimensions but the channels') have two strides: `inner` neighbours, and runs of these.
//
// `span` work-items take a channel's pixels, of a chunk of them each group; which items
// are neighbours follows what lies side by side. batch_norm_chunks makes the moments of
// every chunk in one read. batch_norm_apply joins those of its channels in order and
// normalises its own chunk; where there is one chunk only (`chunks` 0), it makes the
// moments itself, so that all is one launch. The gradients go the same way.

#include "types.clh"
#include "epilogue.clh"
#include "group_rows.clh"
#include "batch_norm_constant.clh"

typedef CONCAT(storage_, PARAM_DTYPE) param_t;
#define LOAD_PARAM(p, i) CONCAT(load_, PARAM_DTYPE)(p, i)
#define STORE_PARAM(p, i, value) CONCAT(store_, PARAM_DTYPE)(p, i, value)
#define PARAM_OR(name, i, missing) \
  (name##_memory ? LOAD_PARAM(POINTER(name), i) : (compute_t)(missing))

#define GEOMETRY                                                              \
  const int channels, const index_t pixels, const index_t inner,              \
      const index_t chunk, const int chunks, const int span, const int is_along
#define LAYOUT(name)                                                          \
  const index_t name##_channel, const index_t name##_run, const index_t name##_pixel

// The item's channel and pixels, `span` apart, of which it is at (run, rest).
#define FIND_PIXELS                                                           \
  GROUP_ROWS(span, is_along)                                                  \
  const int c = (int)get_group_id(0) * group_rows + r;                        \
  const bool is_channel = c < channels;                                       \
  const index_t first = (index_t)get_group_id(1) * chunk;                     \
  const index_t last = is_channel ? min(first + chunk, pixels) : first;       \
  const index_t step_runs = span / inner;                                     \
  const index_t step_rest = span - step_runs * inner;                         \
  index_t at, run, rest;
#define BEGIN                                                                 \
  at = first + along;                                                         \
  run = at / inner;                                                           \
  rest = at - run * inner;
#define NEXT                                                                  \
  at += span;                                                                 \
  run += step_runs;                                                           \
  rest += step_rest;                                                          \
  if (rest >= inner) {                                                        \
    rest -= inner;                                                            \
    ++run;                                                                    \
  }
#define PLACE(name) \
  (c * name##_channel + run * name##_run + rest * name##_pixel)

// A block's pixels are loaded at once, so that their latencies overlap. Past the last
// one, an item loads nothing and takes `missing`.
#define FOR_BLOCK(body) body(0) body(1) body(2) body(3) body(4) body(5) body(6) body(7)
#define FIND_PIXEL(k)                                                         \
  const bool is_##k = at < last;                                              \
  const index_t run_##k = run, rest_##k = rest;                               \
  NEXT
#define PLACE_OF(name, k) \
  (c * name##_channel + run_##k * name##_run + rest_##k * name##_pixel)
#define LOAD_PIXEL(name, k, missing) \
  (is_##k ? LOAD(POINTER(name), PLACE_OF(name, k)) : (missing))

// Compensated (Kahan) summation: the sum is `sum - lost`.
#define KAHAN_ADD(sum, lost, value)                                           \
  {                                                                           \
    const compute_t term = (value) - lost;                                    \
    const compute_t next = sum + term;                                        \
    lost = (next - sum) - term;                                               \
    sum = next;                                                               \
  }

// Mean, sum of squared deviations and count of an item's pixels: those of a block are
// taken from the mean so far, which starts as the first one. The mean is `mean - lost`:
// where it is much larger than the deviations, its rounding shows in the squares of
// those from another mean.
#define LOAD_SELF(k) const compute_t self_##k = LOAD_PIXEL(self, k, 0);
#define ADD_DEVIATION(k)                                                      \
  {                                                                           \
    const compute_t d = is_##k ? self_##k - mean + lost : 0;                  \
    block_sum += d;                                                           \
    block_square += d * d;                                                    \
    count += is_##k ? 1 : 0;                                                  \
  }
#define OWN_MOMENTS(mean, lost, square, count)                                \
  BEGIN                                                                       \
  if (at < last) mean = LOAD(POINTER(self), PLACE(self));                     \
  while (at < last) {                                                         \
    compute_t block_sum = 0, block_square = 0;                                \
    FOR_BLOCK(FIND_PIXEL)                                                     \
    FOR_BLOCK(LOAD_SELF)                                                      \
    FOR_BLOCK(ADD_DEVIATION)                                                  \
    const compute_t change = block_sum / count;                               \
    square += block_square - block_sum * change;                              \
    KAHAN_ADD(mean, lost, change)                                             \
  }
// Joins the items' moments of a channel, of `all` pixels. What the mean is wrong by,
// the sum of the deviations from it says.
#define JOIN_MOMENTS(mean, lost, square, count, all)                          \
  {                                                                           \
    const compute_t own_mean = mean;                                          \
    mean *= count;                                                            \
    ROW_SUM(mean, shared, span)                                               \
    mean /= (all);                                                            \
    const compute_t d = own_mean - mean - lost;                               \
    compute_t residual = d * count;                                           \
    square += d * d * count;                                                  \
    ROW_SUM(residual, shared, span)                                           \
    ROW_SUM(square, shared, span)                                             \
    square -= residual * (residual / (all));                                  \
    lost = 0;                                                                 \
    KAHAN_ADD(mean, lost, residual / (all))                                   \
  }

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_chunks(
    GEOMETRY, LAYOUT(self), TENSOR(compute_t, means), TENSOR(compute_t, means_lost),
    TENSOR(compute_t, squares), CONST_TENSOR(storage_t, self)) {
  local compute_t shared[WG_SIZE];
  FIND_PIXELS
  compute_t mean = 0, lost = 0, square = 0, count = 0;
  OWN_MOMENTS(mean, lost, square, count)
  const compute_t all = max(last - first, (index_t)1);
  JOIN_MOMENTS(mean, lost, square, count, all)
  if (along == 0 && is_channel) {
    const size_t place = (size_t)get_group_id(1) * channels + c;
    POINTER(means)[place] = mean;
    POINTER(means_lost)[place] = lost;
    POINTER(squares)[place] = square;
  }
}

#define LOAD_NORMALISED(k)                                                    \
  const compute_t value_##k =                                                 \
      (LOAD_PIXEL(self, k, center) - center) * scale + shift;
#define FINISH(k)                                                             \
  const size_t place_##k = PLACE_OF(out, k);                                  \
  const compute_t finished_##k =                                              \
      is_##k ? EPILOGUE(value_##k, place_##k, c) : value_##k;
#define STORE_FINISHED(k) \
  if (is_##k) STORE(POINTER(out), place_##k, finished_##k);

// `uses_running`: with the running statistics as they are. `counter` counts batches.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void batch_norm_apply(
    TENSOR(storage_t, out), GEOMETRY, LAYOUT(out), LAYOUT(self), const int uses_running,
    const compute_t epsilon, const compute_t momentum,
    const long running_mean_stride, const long running_var_stride,
    const long counted, TENSOR(long, counter), TENSOR(compute_t, saved_mean),
    TENSOR(compute_t, saved_inverse), TENSOR(param_t, running_mean),
    TENSOR(param_t, running_var), CONST_TENSOR(storage_t, self),
    CONST_TENSOR(compute_t, means), CONST_TENSOR(compute_t, means_lost),
    CONST_TENSOR(compute_t, squares),
    CONST_TENSOR(param_t, weight), CONST_TENSOR(param_t, bias) EPILOGUE_PARAMETERS) {
  local compute_t shared[WG_SIZE];
  FIND_PIXELS
  const compute_t all = pixels;
  compute_t mean = 0, lost = 0, square = 0, count = 0;
  if (chunks > 0 && !uses_running) {
    for (int i = along; i < (is_channel ? chunks : 0); i += span) {
      const size_t place = (size_t)i * channels + c;
      const compute_t size = min(chunk, pixels - i * chunk);
      if (count == 0) mean = POINTER(means)[place];
      const compute_t delta =
          (POINTER(means)[place] - mean) - (POINTER(means_lost)[place] - lost);
      const compute_t share = size / (count + size);
      KAHAN_ADD(mean, lost, delta * share)
      square += POINTER(squares)[place] + delta * delta * count * share;
      count += size;
    }
  } else if (!uses_running) {
    OWN_MOMENTS(mean, lost, square, count)
  }
  // Of running statistics, nothings: barriers are in no branch.
  JOIN_MOMENTS(mean, lost, square, count, all)
  compute_t center = mean;
  const compute_t variance = square;
  compute_t inverse = (compute_t)1 / sqrt(variance / all + epsilon);
  // As the CPU's, where nothing deviates.
  if (epsilon == 0 && IS_CONSTANT(mean, variance / all)) inverse = 0;
  if (uses_running && is_channel) {
    center = PARAM_OR(running_mean, c * running_mean_stride, 0);
    inverse = (compute_t)1 /
              sqrt(PARAM_OR(running_var, c * running_var_stride, 1) + epsilon);
  }
  if (counter_memory && get_global_id(0) == 0 && get_global_id(1) == 0) {
    *POINTER(counter) += counted;
  }
  if (!uses_running && along == 0 && get_group_id(1) == 0 && is_channel) {
    POINTER(saved_mean)[c] = center;
    POINTER(saved_inverse)[c] = inverse;
    if (running_mean_memory) {
      const size_t place = c * running_mean_stride;
      STORE_PARAM(POINTER(running_mean), place,
                  momentum * center + (1 - momentum) *
                                          LOAD_PARAM(POINTER(running_mean), place));
    }
    if (running_var_memory) {
      const size_t place = c * running_var_stride;
      STORE_PARAM(POINTER(running_var), place,
                  momentum * (variance / (all - 1)) +
                      (1 - momentum) * LOAD_PARAM(POINTER(running_var), place));
    }
  }
  const compute_t scale = is_channel ? inverse * PARAM_OR(weight, c, 1) : 0;
  const compute_t shift = is_channel ? PARAM_OR(bias, c, 0) : 0;
  BEGIN
  while (at < last) {
    FOR_BLOCK(FIND_PIXEL)
    FOR_BLOCK(LOAD_NORMALISED)
    FOR_BLOCK(FINISH)
    FOR_BLOCK(STORE_FINISHED)
  }
}

#define GRADIENT_INPUTS                                                       \
  CONST_TENSOR(storage_t, self), CONST_TENSOR(storage_t, grad_output),        \
      CONST_TENSOR(compute_t, mean)

// The sums of an item's grad_output and of its products with deviations.
#define LOAD_GRAD(k) const compute_t grad_##k = LOAD_PIXEL(grad_output, k, 0);
#define LOAD_CENTERED(k) \
  const compute_t d_##k = LOAD_PIXEL(self, k, center) - center;
#define ADD_PRODUCT(k)              \
  block_sum += grad_##k;            \
  block_product += grad_##k * d_##k;
#define OWN_SUMS(sum, product)                                                \
  {                                                                           \
    compute_t sum_lost = 0, product_lost = 0;                                 \
    BEGIN                                                                     \
    while (at < last) {                                                       \
      compute_t block_sum = 0, block_product = 0;                             \
      FOR_BLOCK(FIND_PIXEL)                                                   \
      FOR_BLOCK(LOAD_GRAD)                                                    \
      FOR_BLOCK(LOAD_CENTERED)                                                \
      FOR_BLOCK(ADD_PRODUCT)                                                  \
      KAHAN_ADD(sum, sum_lost, block_sum)                                     \
      KAHAN_ADD(product, product_lost, block_product)                         \
    }                                                                         \
  }

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void batch_norm_gradient_chunks(GEOMETRY, LAYOUT(self), LAYOUT(grad_output),
                                TENSOR(compute_t, sums), TENSOR(compute_t, products),
                                GRADIENT_INPUTS) {
  local compute_t shared[WG_SIZE];
  FIND_PIXELS
  const compute_t center = is_channel ? POINTER(mean)[c] : 0;
  compute_t sum = 0, product = 0;
  OWN_SUMS(sum, product)
  ROW_SUM(sum, shared, span)
  ROW_SUM(product, shared, span)
  if (along == 0 && is_channel) {
    const size_t place = (size_t)get_group_id(1) * channels + c;
    POINTER(sums)[place] = sum;
    POINTER(products)[place] = product;
  }
}

#define STORE_GRAD(k)                                                         \
  if (is_##k)                                                                 \
    STORE(POINTER(grad_input), PLACE_OF(grad_input, k),                       \
          (grad_##k - shift - d_##k * slope) * scale);

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void batch_norm_gradient_apply(
    GEOMETRY, LAYOUT(grad_input), LAYOUT(self), LAYOUT(grad_output),
    TENSOR(storage_t, grad_input), TENSOR(param_t, grad_weight),
    TENSOR(param_t, grad_bias), GRADIENT_INPUTS, CONST_TENSOR(compute_t, inverse_deviation),
    CONST_TENSOR(compute_t, sums), CONST_TENSOR(compute_t, products),
    CONST_TENSOR(param_t, weight)) {
  local compute_t shared[WG_SIZE];
  FIND_PIXELS
  const compute_t center = is_channel ? POINTER(mean)[c] : 0;
  const compute_t inverse = is_channel ? POINTER(inverse_deviation)[c] : 0;
  compute_t all_sum = 0, all_product = 0;
  if (chunks > 0) {
    for (int i = along; i < (is_channel ? chunks : 0); i += span) {
      all_sum += POINTER(sums)[(size_t)i * channels + c];
      all_product += POINTER(products)[(size_t)i * channels + c];
    }
  } else {
    OWN_SUMS(all_sum, all_product)
  }
  ROW_SUM(all_sum, shared, span)
  ROW_SUM(all_product, shared, span)
  if (along == 0 && get_group_id(1) == 0 && is_channel) {
    if (grad_weight_memory)
      STORE_PARAM(POINTER(grad_weight), c, all_product * inverse);
    if (grad_bias_memory) STORE_PARAM(POINTER(grad_bias), c, all_sum);
  }
  if (grad_input_memory) {
    const compute_t scale = is_channel ? inverse * PARAM_OR(weight, c, 1) : 0;
    const compute_t shift = all_sum / pixels;
    const compute_t slope = all_product / pixels * inverse * inverse;
    BEGIN
    while (at < last) {
      FOR_BLOCK(FIND_PIXEL)
      FOR_BLOCK(LOAD_GRAD)
      FOR_BLOCK(LOAD_CENTERED)
      FOR_BLOCK(STORE_GRAD)
    }
  }
}
