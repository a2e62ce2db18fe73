// multi_margin_loss and multilabel_margin_loss and their gradients.
//
// A work-item computes one element of [samples, classes]: a class's share of
// its sample's loss, which the host's reduction adds up, or its gradient. A
// label out of range is reported, and makes the sample NaN.

#include "types.clh"

// The host's Samples. Strides are by (sample, class).
typedef struct {
  long count;
  long classes;
  long self[2];
  long target[2];
  long out[2];        // the element written
  long is_target[2];
  long grad;          // grad_output, 0 where there is one number for all
  long weight;
} samples_t;

typedef struct {
  long sample;
  long label;
  long self;  // offset of the sample
  long out;   // offset of the element
} element_t;

inline element_t element_at(long id, const samples_t *samples) {
  element_t element;
  element.sample = id / samples->classes;
  element.label = id - element.sample * samples->classes;
  element.self = element.sample * samples->self[0];
  element.out = element.sample * samples->out[0] + element.label * samples->out[1];
  return element;
}

#define HEAD                                       \
  const long id = (long)get_global_id(0);          \
  if (id >= samples.count) return;                 \
  const element_t element = element_at(id, &samples); \
  const global storage_t *row = POINTER(self) + element.self;
#define SELF(c) LOAD(row, (c) * samples.self[1])

kernel __attribute__((reqd_work_group_size(64, 1, 1))) void multi_margin_loss_elements(
    const samples_t samples,
    const int p,
    const compute_t margin,
    TENSOR(compute_t, out),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(long, target),
    CONST_TENSOR(storage_t, weight),
    const int has_weight,
    global report_t *record,
    const int op) {
  HEAD
  const long label = POINTER(target)[element.sample * samples.target[0]];
  compute_t loss = NAN;
  if (checked_target(record, op, label, samples.classes)) {
    const compute_t z = margin - SELF(label) + SELF(element.label);
    loss = z > 0 && label != element.label ? (p == 1 ? z : z * z) : 0;
    if (has_weight) loss *= LOAD(POINTER(weight), label * samples.weight);
  }
  POINTER(out)[element.out] = loss;
}

kernel __attribute__((reqd_work_group_size(64, 1, 1))) void multi_margin_loss_backward(
    const samples_t samples,
    const int p,
    const compute_t margin,
    TENSOR(storage_t, out),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(long, target),
    CONST_TENSOR(storage_t, weight),
    const int has_weight,
    CONST_TENSOR(storage_t, grad),
    const compute_t scale,
    global report_t *record,
    const int op) {
  HEAD
  const long label = POINTER(target)[element.sample * samples.target[0]];
  compute_t slope = NAN;
  if (checked_target(record, op, label, samples.classes)) {
    const compute_t threshold = margin - SELF(label);
    // The label's own gradient balances those of the others.
    const bool is_label = label == element.label;
    const long first = is_label ? 0 : element.label;
    const long last = is_label ? samples.classes : first + 1;
    slope = 0;
    for (long c = first; c < last; ++c) {
      const compute_t z = threshold + SELF(c);
      if (z > 0 && c != label) slope += p == 1 ? 1 : 2 * z;
    }
    slope *= scale * LOAD(POINTER(grad), element.sample * samples.grad);
    if (is_label) slope = -slope;
    if (has_weight) slope *= LOAD(POINTER(weight), label * samples.weight);
  }
  STORE(POINTER(out), element.out, slope);
}

// A row of `target` lists labels up to the first negative number.
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void multilabel_margin_loss_elements(
    const samples_t samples,
    TENSOR(compute_t, out),
    TENSOR(storage_t, is_target),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(long, target),
    global report_t *record,
    const int op) {
  HEAD
  const global long *labels = POINTER(target) + element.sample * samples.target[0];
  const long listed = labels[element.label * samples.target[1]];
  if (listed != -1) checked_target(record, op, listed, samples.classes);
  const compute_t own = SELF(element.label);
  compute_t loss = 0;
  bool is_label = false;
  for (long i = 0; i < samples.classes; ++i) {
    const long label = labels[i * samples.target[1]];
    if (label < 0) break;
    if (label >= samples.classes) {
      loss = NAN;
      break;
    }
    const compute_t z = 1 - SELF(label) + own;
    if (z > 0) loss += z;
    is_label = is_label || label == element.label;
  }
  POINTER(out)[element.out] = is_label && !isnan(loss) ? 0 : loss;
  STORE(POINTER(is_target),
        element.sample * samples.is_target[0] + element.label * samples.is_target[1],
        is_label ? 1 : 0);
}

kernel __attribute__((reqd_work_group_size(64, 1, 1))) void multilabel_margin_loss_backward(
    const samples_t samples,
    TENSOR(storage_t, out),
    CONST_TENSOR(storage_t, is_target),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(long, target),
    CONST_TENSOR(storage_t, grad),
    const compute_t scale,
    global report_t *record,
    const int op) {
  HEAD
  const global long *labels = POINTER(target) + element.sample * samples.target[0];
  const global storage_t *mask = POINTER(is_target) + element.sample * samples.is_target[0];
  const compute_t own = SELF(element.label);
  // Pairs beyond the margin in which this class is the label, or is not.
  long as_label = 0, as_other = 0;
  bool in_range = true;
  for (long i = 0; i < samples.classes; ++i) {
    const long label = labels[i * samples.target[1]];
    if (label < 0) break;
    in_range = checked_target(record, op, label, samples.classes);
    if (!in_range) break;
    as_label += label == element.label;
    as_other += 1 - SELF(label) + own > 0;
  }
  compute_t slope = (compute_t)as_other;
  if (LOAD(mask, element.label * samples.is_target[1]) != 0) {
    long others = 0;
    for (long c = 0; c < samples.classes; ++c) {
      others += LOAD(mask, c * samples.is_target[1]) == 0 && 1 - own + SELF(c) > 0;
    }
    slope = -(compute_t)(as_label * others);
  }
  slope *= scale * LOAD(POINTER(grad), element.sample * samples.grad);
  STORE(POINTER(out), element.out, in_range ? slope : NAN);
}
