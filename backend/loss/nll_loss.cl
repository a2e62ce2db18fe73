// Negative log likelihood, -weight[target] * self[target], of samples
// numbered over batch, height and width, and its gradient.
//
// A target out of range is reported: nothing is read or written for it, and its
// loss is NaN.
//
// Sums: each work-group adds up the samples of its stripe in a fixed order and
// leaves two partial sums, which a single work-group adds up in turn.

#include "types.clh"
#include "index.clh"
#include "targets.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif

// The host's Samples.
typedef struct {
  long ignore_index;
  index_t count;
  index_t weight_stride;
  index_t class_stride;
  index_t self_strides[3];  // batch, height, width
  index_t target_strides[3];
  index_t out_strides[3];  // forward's output, backward's grad_output
  int classes;
  int height;
  int width;
  int has_weight;
} samples_t;

typedef struct {
  index_t self;
  index_t out;
  long target;
} sample_t;

inline sample_t sample_at(index_t id,
                          const samples_t *samples,
                          const global target_t *targets) {
  const int x = (int)(id % samples->width);
  const index_t row = id / samples->width;
  const int y = (int)(row % samples->height);
  const index_t batch = row / samples->height;
  sample_t sample;
  sample.self = batch * samples->self_strides[0] + y * samples->self_strides[1] +
                x * samples->self_strides[2];
  sample.out = batch * samples->out_strides[0] + y * samples->out_strides[1] +
               x * samples->out_strides[2];
  sample.target = targets[batch * samples->target_strides[0] +
                          y * samples->target_strides[1] +
                          x * samples->target_strides[2]];
  return sample;
}

inline compute_t weight_of(long target,
                           const samples_t *samples,
                           const global storage_t *weight) {
  return samples->has_weight ? LOAD(weight, target * samples->weight_stride)
                             : (compute_t)1;
}

inline compute_t loss_of(const sample_t *sample,
                         const samples_t *samples,
                         const global storage_t *self,
                         compute_t weight) {
  return -LOAD(self, sample->self + sample->target * samples->class_stride) * weight;
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void nll_loss_each(
    const samples_t samples,
    TENSOR(storage_t, out),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(target_t, target),
    CONST_TENSOR(storage_t, weight),
    global report_t *record,
    const int op) {
  const index_t id = (index_t)get_global_id(0);
  if (id >= samples.count) return;
  const sample_t sample = sample_at(id, &samples, POINTER(target));
  compute_t loss = NAN;
  if (sample.target == samples.ignore_index) {
    loss = 0;
  } else if (checked_target(record, op, sample.target, samples.classes)) {
    loss = loss_of(&sample,
                   &samples,
                   POINTER(self),
                   weight_of(sample.target, &samples, POINTER(weight)));
  }
  STORE(POINTER(out), sample.out, loss);
}

// The group's sum of each item's pair, to the first item.
inline void group_sums(local compute_t *loss, local compute_t *weight) {
  const int item = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_size = WG_SIZE / 2; half_size > 0; half_size /= 2) {
    if (item < half_size) {
      loss[item] += loss[item + half_size];
      weight[item] += weight[item + half_size];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

// partials: a pair (sum of losses, sum of weights) of each work-group.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void nll_loss_partials(
    const samples_t samples,
    TENSOR(compute_t, partials),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(target_t, target),
    CONST_TENSOR(storage_t, weight),
    global report_t *record,
    const int op) {
  local compute_t losses[WG_SIZE];
  local compute_t weights[WG_SIZE];
  compute_t loss_sum = 0;
  compute_t weight_sum = 0;
  for (index_t id = (index_t)get_global_id(0); id < samples.count;
       id += (index_t)get_global_size(0)) {
    const sample_t sample = sample_at(id, &samples, POINTER(target));
    if (sample.target == samples.ignore_index) continue;
    if (checked_target(record, op, sample.target, samples.classes)) {
      const compute_t w = weight_of(sample.target, &samples, POINTER(weight));
      loss_sum += loss_of(&sample, &samples, POINTER(self), w);
      weight_sum += w;
    } else {
      loss_sum = NAN;
    }
  }
  losses[get_local_id(0)] = loss_sum;
  weights[get_local_id(0)] = weight_sum;
  group_sums(losses, weights);
  if (get_local_id(0) == 0) {
    POINTER(partials)[2 * get_group_id(0)] = losses[0];
    POINTER(partials)[2 * get_group_id(0) + 1] = weights[0];
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void nll_loss_finish(
    const int partial_count,
    const int mean,
    TENSOR(storage_t, out),
    TENSOR(storage_t, total_weight),
    CONST_TENSOR(compute_t, partials)) {
  local compute_t losses[WG_SIZE];
  local compute_t weights[WG_SIZE];
  compute_t loss_sum = 0;
  compute_t weight_sum = 0;
  for (int i = get_local_id(0); i < partial_count; i += WG_SIZE) {
    loss_sum += POINTER(partials)[2 * i];
    weight_sum += POINTER(partials)[2 * i + 1];
  }
  losses[get_local_id(0)] = loss_sum;
  weights[get_local_id(0)] = weight_sum;
  group_sums(losses, weights);
  if (get_local_id(0) == 0) {
    // Nothing counted is 0 / 0: NaN, as PyTorch defines the mean.
    STORE(POINTER(out), 0, mean ? losses[0] / weights[0] : losses[0]);
    STORE(POINTER(total_weight), 0, weights[0]);
  }
}

// A work-item a sample writes one element of grad_input, which comes filled with
// zeros; where `is_dense`, a work-item each element writes that.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void nll_loss_backward(
    const samples_t samples,
    const int mean,
    const int is_dense,
    TENSOR(storage_t, grad_input),
    CONST_TENSOR(storage_t, grad_output),
    CONST_TENSOR(target_t, target),
    CONST_TENSOR(storage_t, weight),
    CONST_TENSOR(storage_t, total_weight),
    global report_t *record,
    const int op) {
  index_t id = (index_t)get_global_id(0);
  long own = -1;  // the class that is written
  if (is_dense) {
    // Neighbours write neighbours.
    const bool is_by_class = samples.class_stride == 1;
    const index_t inner = is_by_class ? samples.classes : samples.count;
    own = is_by_class ? id % inner : id / inner;
    id = is_by_class ? id / inner : id % inner;
    if (own >= samples.classes) return;
  }
  if (id >= samples.count) return;
  const sample_t sample = sample_at(id, &samples, POINTER(target));
  const bool counts = sample.target != samples.ignore_index &&
                      checked_target(record, op, sample.target, samples.classes);
  if (is_dense && !(counts && sample.target == own)) {
    STORE(POINTER(grad_input), sample.self + (index_t)own * samples.class_stride, 0);
    return;
  }
  if (!counts) return;
  compute_t grad = LOAD(POINTER(grad_output), sample.out);
  if (mean) grad /= LOAD(POINTER(total_weight), 0);
  STORE(POINTER(grad_input),
        sample.self + sample.target * samples.class_stride,
        -grad * weight_of(sample.target, &samples, POINTER(weight)));
}
