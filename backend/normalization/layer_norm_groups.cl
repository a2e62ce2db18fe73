// Layer normalisation of contiguous rows and its gradients, and group normalisation,
// for GPUs.
//
// `span` work-items take a row, short rows share a group. The kept kernels read a row
// once and keep it in registers; the twice kernels read a longer one again to
// normalise it. Deviations are from the mean, never differences of squares. Sums over
// the rows, for the parameters, are made by groups of COLUMNS columns, in chunks of
// rows that layer_norm_parameters adds up in order.

#include "types.clh"
#include "loads_ahead.clh"
#include "epilogue.clh"
#include "group_rows.clh"

#define ITEMS 8
#define COLUMNS 32

typedef CONCAT(storage_, PARAM_DTYPE) param_t;
#define LOAD_PARAM(p, i) CONCAT(load_, PARAM_DTYPE)(p, i)
#define STORE_PARAM(p, i, value) CONCAT(store_, PARAM_DTYPE)(p, i, value)
#define WEIGHT(i) (weight_memory ? LOAD_PARAM(POINTER(weight), PARAM_AT(i)) : 1)
#define BIAS(i) (bias_memory ? LOAD_PARAM(POINTER(bias), PARAM_AT(i)) : 0)
// Of group normalisation (BY_CHANNEL), a row is some channels of `pixels` each, and
// `groups` rows are an image.
#if BY_CHANNEL
#define CHANNELS const int pixels, const int groups,
#define PARAM_AT(i) ((int)(row % groups) * (size / pixels) + (i) / pixels)
#else
#define CHANNELS
#define PARAM_AT(i) (i)
#endif

#define FIND_ROW                                                              \
  GROUP_ROWS(span, 1)                                                         \
  const long row = (long)get_group_id(0) * group_rows + r;                    \
  const int end = row < count ? size : 0;                                     \
  const size_t start = row * size;

// What an item has of its row, from `begin` on: element number i at k.
#define FOR_OWN(k, i, begin)                                                  \
  _Pragma("unroll") for (int k = 0; k < ITEMS; ++k)                           \
    for (int i = (begin) + along + k * span, once = 1; once && i < end; once = 0)

#define FORWARD_PARAMETERS                                                    \
  const long count, const int size, const int span, CHANNELS                  \
      const compute_t epsilon,                                                \
      TENSOR(storage_t, out), TENSOR(compute_t, means),                       \
      TENSOR(compute_t, inverse_deviations), CONST_TENSOR(storage_t, self),   \
      CONST_TENSOR(param_t, weight), CONST_TENSOR(param_t, bias)

// The row's mean and inverse deviation from sums of residuals and of their squares
// about `mean`, which is corrected by what it was wrong.
#define FINISH_STATISTICS(residual, square)                                   \
  ROW_SUM(residual, shared, span)                                             \
  ROW_SUM(square, shared, span)                                               \
  const compute_t correction = residual / size;                               \
  mean += correction;                                                         \
  const compute_t inverse =                                                   \
      (compute_t)1 / sqrt((square - residual * correction) / size + epsilon); \
  if (along == 0 && row < count) {                                            \
    POINTER(means)[row] = mean;                                               \
    POINTER(inverse_deviations)[row] = inverse;                               \
  }
#define NORMALISED(x, i) (((x) - mean) * inverse * WEIGHT(i) + BIAS(i))

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void layer_norm_kept(
    FORWARD_PARAMETERS) {
  local compute_t shared[WG_SIZE];
  FIND_ROW
  const global storage_t *x = POINTER(self) + start;
  compute_t kept[ITEMS];
  compute_t mean = 0;
  FOR_OWN(k, i, 0) {
    kept[k] = LOAD(x, i);
    mean += kept[k];
  }
  ROW_SUM(mean, shared, span)
  mean /= size;
  compute_t residual = 0, square = 0;
  FOR_OWN(k, i, 0) {
    const compute_t d = kept[k] - mean;
    residual += d;
    square += d * d;
  }
  FINISH_STATISTICS(residual, square)
  FOR_OWN(k, i, 0) STORE(POINTER(out), start + i, NORMALISED(kept[k], i));
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void layer_norm_twice(
    FORWARD_PARAMETERS) {
  local compute_t shared[WG_SIZE];
  FIND_ROW
  const global storage_t *x = POINTER(self) + start;
  // Of this item's elements (Chan, Golub and LeVeque, 1979), block by block, from the
  // first one: a mean much larger than the deviations would round them.
  const compute_t first = end > 0 ? LOAD(x, 0) : 0;
  compute_t own_mean = 0, own_square = 0, own_count = 0;
  for (int begin = 0; begin < end; begin += span * ITEMS) {
    compute_t kept[ITEMS];
    compute_t block_mean = 0, block_square = 0, block_count = 0;
    FOR_OWN(k, i, begin) {
      kept[k] = LOAD(x, i) - first;
      block_mean += kept[k];
      block_count += 1;
    }
    if (block_count == 0) continue;
    block_mean /= block_count;
    FOR_OWN(k, i, begin) block_square += (kept[k] - block_mean) * (kept[k] - block_mean);
    const compute_t delta = block_mean - own_mean;
    const compute_t share = block_count / (own_count + block_count);
    own_mean += delta * share;
    own_square += block_square + delta * delta * own_count * share;
    own_count += block_count;
  }
  compute_t mean = own_mean * own_count;
  ROW_SUM(mean, shared, span)
  mean /= size;
  const compute_t d = own_mean - mean;
  compute_t residual = d * own_count;
  compute_t square = own_square + d * d * own_count;
  mean += first;
  FINISH_STATISTICS(residual, square)
#pragma unroll 4
  for (int i = along; i < end; i += span)
    STORE(POINTER(out), start + i, NORMALISED(LOAD(x, i), i));
}

#if !BY_CHANNEL
#define BACKWARD_PARAMETERS                                                   \
  TENSOR(storage_t, grad_input), const long count, const int size,            \
      const int span, CONST_TENSOR(storage_t, grad_output),                   \
      CONST_TENSOR(storage_t, self), CONST_TENSOR(compute_t, means),          \
      CONST_TENSOR(compute_t, inverse_deviations),                            \
      CONST_TENSOR(param_t, weight) EPILOGUE_PARAMETERS
#define STORE_GRADIENT(i, value)                                              \
  STORE(POINTER(grad_input), start + (i), EPILOGUE(value, start + (i), 0));

#define FIND_STATISTICS                                                       \
  const compute_t mean = end > 0 ? POINTER(means)[row] : 0;                   \
  const compute_t inverse = end > 0 ? POINTER(inverse_deviations)[row] : 0;
#define FINISH_SUMS(shift, slope)                                             \
  ROW_SUM(shift, shared, span)                                                \
  ROW_SUM(slope, shared, span)                                                \
  shift /= size;                                                              \
  slope = slope / size * inverse * inverse;

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void layer_norm_kept_backward(BACKWARD_PARAMETERS) {
  local compute_t shared[WG_SIZE];
  FIND_ROW
  FIND_STATISTICS
  compute_t grads[ITEMS], deviations[ITEMS];
  compute_t shift = 0, slope = 0;
  FOR_OWN(k, i, 0) {
    grads[k] = LOAD(POINTER(grad_output), start + i) * WEIGHT(i);
    deviations[k] = LOAD(POINTER(self), start + i) - mean;
    shift += grads[k];
    slope += grads[k] * deviations[k];
  }
  FINISH_SUMS(shift, slope)
  FOR_OWN(k, i, 0)
    STORE_GRADIENT(i, (grads[k] - shift - deviations[k] * slope) * inverse)
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void layer_norm_twice_backward(BACKWARD_PARAMETERS) {
  local compute_t shared[WG_SIZE];
  FIND_ROW
  FIND_STATISTICS
  compute_t shift = 0, slope = 0;
  for (int begin = 0; begin < end; begin += span * ITEMS) {
    compute_t sum = 0, product = 0;
    FOR_OWN(k, i, begin) {
      const compute_t grad = LOAD(POINTER(grad_output), start + i) * WEIGHT(i);
      sum += grad;
      product += grad * (LOAD(POINTER(self), start + i) - mean);
    }
    shift += sum;
    slope += product;
  }
  FINISH_SUMS(shift, slope)
#pragma unroll 4
  for (int i = along; i < end; i += span) {
    const compute_t grad = LOAD(POINTER(grad_output), start + i) * WEIGHT(i);
    const compute_t d = LOAD(POINTER(self), start + i) - mean;
    STORE_GRADIENT(i, (grad - shift - d * slope) * inverse)
  }
}

// A group's columns side by side; WG_SIZE / COLUMNS items share one.
#define FIND_COLUMN                                                           \
  GROUP_ROWS(WG_SIZE / COLUMNS, 0)                                            \
  const int column = get_group_id(0) * COLUMNS + r;                           \
  compute_t weight_sum = 0, bias_sum = 0;
#define SUM_COLUMN                                                            \
  TREE_REDUCE(weight_sum, shared, WG_SIZE / COLUMNS, ADD)                     \
  TREE_REDUCE(bias_sum, shared, WG_SIZE / COLUMNS, ADD)

// The sums of a chunk of rows lie as [chunk][column].
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void layer_norm_parameter_chunks(
    const long count, const int size, const long chunk, TENSOR(compute_t, weight_sums),
    TENSOR(compute_t, bias_sums), CONST_TENSOR(storage_t, grad_output),
    CONST_TENSOR(storage_t, self), CONST_TENSOR(compute_t, means),
    CONST_TENSOR(compute_t, inverse_deviations)) {
  local compute_t shared[WG_SIZE];
  FIND_COLUMN
  const long first = (long)get_group_id(1) * chunk;
  const long last = column < size ? min(first + chunk, count) : 0;
  FOR_LOADS_AHEAD(
      long, row, first + along, last, WG_SIZE / COLUMNS,
      const compute_t grad = LOAD(POINTER(grad_output), row * size + column);
      const compute_t d = LOAD(POINTER(self), row * size + column) - POINTER(means)[row];
      weight_sum += grad * d * POINTER(inverse_deviations)[row];
      bias_sum += grad;)
  SUM_COLUMN
  if (along == 0 && column < size) {
    POINTER(weight_sums)[(size_t)get_group_id(1) * size + column] = weight_sum;
    POINTER(bias_sums)[(size_t)get_group_id(1) * size + column] = bias_sum;
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void layer_norm_parameters(
    const int size, const int chunks, TENSOR(param_t, grad_weight),
    TENSOR(param_t, grad_bias), CONST_TENSOR(compute_t, weight_sums),
    CONST_TENSOR(compute_t, bias_sums)) {
  local compute_t shared[WG_SIZE];
  FIND_COLUMN
  const int last = column < size ? chunks : 0;
  FOR_LOADS_AHEAD(int, i, along, last, WG_SIZE / COLUMNS,
                  weight_sum += POINTER(weight_sums)[(size_t)i * size + column];
                  bias_sum += POINTER(bias_sums)[(size_t)i * size + column];)
  SUM_COLUMN
  if (along == 0 && column < size) {
    if (grad_weight_memory) STORE_PARAM(POINTER(grad_weight), column, weight_sum);
    if (grad_bias_memory) STORE_PARAM(POINTER(grad_bias), column, bias_sum);
  }
}
#else
// The gradients of group normalisation: a work-group takes a row, `span` items a
// channel of it. Sums over the channel's pixels, of grad_output and of grad_output
// times the normalised input, lie as [image][channel]; layer_norm_parameters adds
// them up over the images.
#define FOR_CHANNELS                                                          \
  for (int first = 0; first < group_channels; first += group_rows)
#define FIND_CHANNEL                                                          \
  const int c = first + r;                                                    \
  const int end = c < group_channels ? pixels : 0;                            \
  const size_t start = ((size_t)row * group_channels + c) * pixels;           \
  const compute_t scale =                                                     \
      weight_memory && end > 0                                                \
          ? LOAD_PARAM(POINTER(weight), (int)(row % groups) * group_channels + c) \
          : 1;

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void group_norm_by_groups_backward(
    const int group_channels, const int span, CHANNELS TENSOR(storage_t, grad_input),
    TENSOR(compute_t, sums), TENSOR(compute_t, products),
    CONST_TENSOR(storage_t, grad_output), CONST_TENSOR(storage_t, self),
    CONST_TENSOR(compute_t, means), CONST_TENSOR(compute_t, inverse_deviations),
    CONST_TENSOR(param_t, weight)) {
  local compute_t shared[WG_SIZE];
  GROUP_ROWS(span, 1)
  const long row = get_group_id(0);
  const compute_t mean = POINTER(means)[row];
  const compute_t inverse = POINTER(inverse_deviations)[row];
  compute_t shift = 0, slope = 0;
  FOR_CHANNELS {
    FIND_CHANNEL
    compute_t sum = 0, product = 0;
    FOR_LOADS_AHEAD(int, i, along, end, span,
                    const compute_t grad = LOAD(POINTER(grad_output), start + i);
                    sum += grad;
                    product += grad * (LOAD(POINTER(self), start + i) - mean);)
    ROW_SUM(sum, shared, span)
    ROW_SUM(product, shared, span)
    product *= inverse;
    if (along == 0 && end > 0) {
      POINTER(sums)[row * group_channels + c] = sum;
      POINTER(products)[row * group_channels + c] = product;
    }
    shift += scale * sum;
    slope += scale * product;
  }
  // All items of a channel have its sums: those of one are added up.
  shift = along == 0 ? shift : 0;
  slope = along == 0 ? slope : 0;
  {
    const int along = item;
    const int pitch = 1;
    ROW_SUM(shift, shared, WG_SIZE)
    ROW_SUM(slope, shared, WG_SIZE)
  }
  shift /= (compute_t)group_channels * pixels;
  slope = slope / ((compute_t)group_channels * pixels) * inverse;
  if (!grad_input_memory) return;
  FOR_CHANNELS {
    FIND_CHANNEL
#pragma unroll 4
    for (int i = along; i < end; i += span) {
      const compute_t grad = LOAD(POINTER(grad_output), start + i) * scale;
      const compute_t d = LOAD(POINTER(self), start + i) - mean;
      STORE(POINTER(grad_input), start + i, (grad - shift - d * slope) * inverse);
    }
  }
}
#endif
