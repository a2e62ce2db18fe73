// Connectionist temporal classification: Graves, Fernandez, Gomez and
// Schmidhuber, ICML 2006. The states of a sample are its labels with a blank
// before, between and behind them; alpha and beta are the log-probabilities of
// all paths up to and from a state at a time step.
//
// ctc_loss_alpha and ctc_loss_beta: a work-group computes a sample. Its
// work-items share the states of a time step and meet before the next.
// ctc_loss_collect: a work-item adds up what the states of a sample at one
// time step give to each label. ctc_loss_gradient: a work-item an element.
// A label out of range is reported, and has probability 0.

#include "types.clh"
#include "targets.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif

// The host's Problem::Layout.
typedef struct {
  long steps;
  long batch;
  long labels;
  long states;        // of the longest target
  long log_probs[3];  // strides by step, sample, label
  long target;        // stride
  long grad;          // stride
  long blank;
} layout_t;

typedef struct {
  long steps;
  long states;
  const global target_t *targets;
  const global storage_t *log_probs;
} sample_t;

// `lengths`: a row each of input lengths, target lengths and offsets of targets.
#define SAMPLE_AT(n)                                                   \
  {                                                                    \
    POINTER(lengths)[n], 2 * POINTER(lengths)[layout.batch + (n)] + 1, \
        POINTER(targets) + POINTER(lengths)[2 * layout.batch + (n)],   \
        POINTER(log_probs) + (n) * layout.log_probs[1]                 \
  }

inline long label_of(long state, const sample_t *sample, const layout_t *layout) {
  return state & 1 ? (long)sample->targets[(state >> 1) * layout->target] : layout->blank;
}

inline compute_t log_prob(
    long step, long label, const sample_t *sample, const layout_t *layout) {
  if (label < 0 || label >= layout->labels) return -INFINITY;
  return LOAD(sample->log_probs, step * layout->log_probs[0] + label * layout->log_probs[2]);
}

inline compute_t log_sum_exp(compute_t a, compute_t b, compute_t c) {
  const compute_t largest = fmax(fmax(a, b), c);
  const compute_t shift = largest == -INFINITY ? 0 : largest;
  return log(exp(a - shift) + exp(b - shift) + exp(c - shift)) + shift;
}

// By all items of a work-group.
inline void check_targets(const sample_t *sample, const layout_t *layout,
                          global report_t *record, int op) {
  for (long s = 1 + 2 * get_local_id(0); s < sample->states; s += 2 * WG_SIZE) {
    checked_target(record, op, label_of(s, sample, layout), layout->labels);
  }
}

// A blank may be skipped between two different labels.
inline bool may_skip(long state, long other, const sample_t *sample, const layout_t *layout) {
  return (state & 1) && label_of(state, sample, layout) != label_of(other, sample, layout);
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void ctc_loss_alpha(
    const layout_t layout,
    TENSOR(storage_t, loss),
    TENSOR(storage_t, alpha),
    CONST_TENSOR(storage_t, log_probs),
    CONST_TENSOR(target_t, targets),
    CONST_TENSOR(long, lengths),
    global report_t *record,
    const int op) {
  const long n = get_group_id(0);
  const sample_t sample = SAMPLE_AT(n);
  check_targets(&sample, &layout, record, op);
  global storage_t *rows = POINTER(alpha) + n * layout.steps * layout.states;
  for (long t = 0; t < layout.steps; ++t) {
    global storage_t *row = rows + t * layout.states;
    const global storage_t *before = row - layout.states;
    for (long s = get_local_id(0); s < layout.states; s += WG_SIZE) {
      compute_t value = -INFINITY;
      if (t < sample.steps && s < sample.states && (t > 0 || s < 2)) {
        value = t == 0 ? 0
                       : log_sum_exp(before[s],
                                     s > 0 ? before[s - 1] : -INFINITY,
                                     s > 1 && may_skip(s, s - 2, &sample, &layout)
                                         ? before[s - 2]
                                         : -INFINITY);
        value += log_prob(t, label_of(s, &sample, &layout), &sample, &layout);
      }
      row[s] = value;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
  if (get_local_id(0) != 0) return;
  compute_t result = sample.states == 1 ? 0 : INFINITY;
  if (sample.steps > 0) {
    const global storage_t *last = rows + (sample.steps - 1) * layout.states + sample.states - 1;
    result = -log_sum_exp(last[0], sample.states > 1 ? last[-1] : -INFINITY, -INFINITY);
  }
  POINTER(loss)[n] = result;
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void ctc_loss_beta(
    const layout_t layout,
    TENSOR(storage_t, beta),
    CONST_TENSOR(storage_t, log_probs),
    CONST_TENSOR(target_t, targets),
    CONST_TENSOR(long, lengths),
    global report_t *record,
    const int op) {
  const long n = get_group_id(0);
  const sample_t sample = SAMPLE_AT(n);
  check_targets(&sample, &layout, record, op);
  global storage_t *rows = POINTER(beta) + n * layout.steps * layout.states;
  const long end = sample.states;
  for (long t = sample.steps - 1; t >= 0; --t) {
    global storage_t *row = rows + t * layout.states;
    const global storage_t *after = row + layout.states;
    const bool is_last = t == sample.steps - 1;
    for (long s = get_local_id(0); s < end; s += WG_SIZE) {
      compute_t value = -INFINITY;
      if (!is_last || s + 2 >= end) {
        value = is_last ? 0
                        : log_sum_exp(after[s],
                                      s + 1 < end ? after[s + 1] : -INFINITY,
                                      s + 2 < end && may_skip(s, s + 2, &sample, &layout)
                                          ? after[s + 2]
                                          : -INFINITY);
        value += log_prob(t, label_of(s, &sample, &layout), &sample, &layout);
      }
      row[s] = value;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
}

// `collected` is [steps, batch, labels] and comes filled with -infinity.
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void ctc_loss_collect(
    const layout_t layout,
    TENSOR(storage_t, collected),
    CONST_TENSOR(storage_t, alpha),
    CONST_TENSOR(storage_t, beta),
    CONST_TENSOR(storage_t, log_probs),
    CONST_TENSOR(target_t, targets),
    CONST_TENSOR(long, lengths)) {
  const long id = (long)get_global_id(0);
  if (id >= layout.steps * layout.batch) return;
  const long t = id / layout.batch;
  const long n = id - t * layout.batch;
  const sample_t sample = SAMPLE_AT(n);
  if (t >= sample.steps) return;
  global storage_t *row = POINTER(collected) + id * layout.labels;
  const long first = (n * layout.steps + t) * layout.states;
  for (long s = 0; s < sample.states; ++s) {
    const long label = label_of(s, &sample, &layout);
    if (label < 0 || label >= layout.labels) continue;
    const compute_t paths = POINTER(alpha)[first + s] + POINTER(beta)[first + s];
    row[label] = log_sum_exp(row[label], paths, -INFINITY);
  }
}

kernel __attribute__((reqd_work_group_size(64, 1, 1))) void ctc_loss_gradient(
    const layout_t layout,
    const int zero_infinity,
    TENSOR(storage_t, collected),
    CONST_TENSOR(storage_t, grad),
    CONST_TENSOR(storage_t, loss),
    CONST_TENSOR(storage_t, log_probs),
    CONST_TENSOR(long, lengths)) {
  const long id = (long)get_global_id(0);
  if (id >= layout.steps * layout.batch * layout.labels) return;
  const long row = id / layout.labels;
  const long t = row / layout.batch;
  const long n = row - t * layout.batch;
  const compute_t nll = POINTER(loss)[n];
  compute_t slope = 0;
  if (t < POINTER(lengths)[n] && !(zero_infinity && nll == INFINITY)) {
    const compute_t p = LOAD(POINTER(log_probs),
                             t * layout.log_probs[0] + n * layout.log_probs[1] +
                                 (id - row * layout.labels) * layout.log_probs[2]);
    slope = (exp(p) - exp(POINTER(collected)[id] + nll - p)) * POINTER(grad)[n * layout.grad];
  }
  POINTER(collected)[id] = slope;
}
