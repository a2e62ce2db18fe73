// The pointwise half of LSTM and GRU cells, whose gates come from two matrix
// products. A work-item makes one unit of one batch entry. Gates are (batch,
// gates * units), contiguous, in torch's order: input, forget, cell, output;
// reset, update, new.

#include "types.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif
#ifndef HAS_BIAS
#define HAS_BIAS 0
#endif

inline compute_t sigmoid(compute_t x) {
  return 1 / (1 + exp(-x));
}

#if HAS_BIAS
#define BIASES , CONST_TENSOR(storage_t, input_bias), CONST_TENSOR(storage_t, hidden_bias)
#define INPUT_GATE(k) (LOAD(POINTER(input_gates), GATE(k)) + LOAD(POINTER(input_bias), (k) * units + unit))
#define HIDDEN_GATE(k) (LOAD(POINTER(hidden_gates), GATE(k)) + LOAD(POINTER(hidden_bias), (k) * units + unit))
#else
#define BIASES
#define INPUT_GATE(k) LOAD(POINTER(input_gates), GATE(k))
#define HIDDEN_GATE(k) LOAD(POINTER(hidden_gates), GATE(k))
#endif

#define UNIT(gates)                                             \
  const size_t item = get_global_id(0);                         \
  if (item >= count) return;                                    \
  const size_t unit = item % units;                             \
  const size_t first = item / units * units * (gates) + unit;
#define GATE(k) (first + (k) * units)

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void lstm_cell(
    TENSOR(storage_t, hy), TENSOR(storage_t, cy), TENSOR(storage_t, workspace),
    CONST_TENSOR(storage_t, input_gates), CONST_TENSOR(storage_t, hidden_gates),
    CONST_TENSOR(storage_t, cx), const ulong count, const ulong units BIASES) {
  UNIT(4)
  const compute_t in = sigmoid(INPUT_GATE(0) + HIDDEN_GATE(0));
  const compute_t forget = sigmoid(INPUT_GATE(1) + HIDDEN_GATE(1));
  const compute_t cell = tanh(INPUT_GATE(2) + HIDDEN_GATE(2));
  const compute_t out = sigmoid(INPUT_GATE(3) + HIDDEN_GATE(3));
  const compute_t state = forget * LOAD(POINTER(cx), item) + in * cell;
  STORE(POINTER(hy), item, out * tanh(state));
  STORE(POINTER(cy), item, state);
  STORE(POINTER(workspace), GATE(0), in);
  STORE(POINTER(workspace), GATE(1), forget);
  STORE(POINTER(workspace), GATE(2), cell);
  STORE(POINTER(workspace), GATE(3), out);
}

// An undefined gradient is one of zeros.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void lstm_cell_backward(
    TENSOR(storage_t, grad_gates), TENSOR(storage_t, grad_cx),
    CONST_TENSOR(storage_t, grad_hy), CONST_TENSOR(storage_t, grad_cy),
    CONST_TENSOR(storage_t, cx), CONST_TENSOR(storage_t, cy),
    CONST_TENSOR(storage_t, workspace), const ulong count, const ulong units,
    const int has_grad_hy, const int has_grad_cy) {
  UNIT(4)
  const compute_t in = LOAD(POINTER(workspace), GATE(0));
  const compute_t forget = LOAD(POINTER(workspace), GATE(1));
  const compute_t cell = LOAD(POINTER(workspace), GATE(2));
  const compute_t out = LOAD(POINTER(workspace), GATE(3));
  const compute_t state = tanh(LOAD(POINTER(cy), item));
  const compute_t d_hy = has_grad_hy ? LOAD(POINTER(grad_hy), item) : (compute_t)0;
  const compute_t d_cy = has_grad_cy ? LOAD(POINTER(grad_cy), item) : (compute_t)0;
  const compute_t d_state = d_hy * out * (1 - state * state) + d_cy;
  STORE(POINTER(grad_gates), GATE(0), d_state * cell * (1 - in) * in);
  STORE(POINTER(grad_gates), GATE(1),
        d_state * LOAD(POINTER(cx), item) * (1 - forget) * forget);
  STORE(POINTER(grad_gates), GATE(2), d_state * in * (1 - cell * cell));
  STORE(POINTER(grad_gates), GATE(3), d_hy * state * (1 - out) * out);
  STORE(POINTER(grad_cx), item, d_state * forget);
}

// The workspace keeps reset, update, new, hx and the hidden part of new.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void gru_cell(
    TENSOR(storage_t, hy), TENSOR(storage_t, workspace),
    CONST_TENSOR(storage_t, input_gates), CONST_TENSOR(storage_t, hidden_gates),
    CONST_TENSOR(storage_t, hx), const ulong count, const ulong units BIASES) {
  UNIT(3)
  const compute_t reset = sigmoid(INPUT_GATE(0) + HIDDEN_GATE(0));
  const compute_t update = sigmoid(INPUT_GATE(1) + HIDDEN_GATE(1));
  const compute_t hidden = HIDDEN_GATE(2);
  const compute_t fresh = tanh(INPUT_GATE(2) + reset * hidden);
  const compute_t old = LOAD(POINTER(hx), item);
  STORE(POINTER(hy), item, fresh + update * (old - fresh));
  const size_t kept = item / units * units * 5 + unit;
  STORE(POINTER(workspace), kept, reset);
  STORE(POINTER(workspace), kept + units, update);
  STORE(POINTER(workspace), kept + 2 * units, fresh);
  STORE(POINTER(workspace), kept + 3 * units, old);
  STORE(POINTER(workspace), kept + 4 * units, hidden);
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void gru_cell_backward(
    TENSOR(storage_t, grad_input_gates), TENSOR(storage_t, grad_hidden_gates),
    TENSOR(storage_t, grad_hx), CONST_TENSOR(storage_t, grad_hy),
    CONST_TENSOR(storage_t, workspace), const ulong count, const ulong units) {
  UNIT(3)
  const size_t kept = item / units * units * 5 + unit;
  const compute_t reset = LOAD(POINTER(workspace), kept);
  const compute_t update = LOAD(POINTER(workspace), kept + units);
  const compute_t fresh = LOAD(POINTER(workspace), kept + 2 * units);
  const compute_t old = LOAD(POINTER(workspace), kept + 3 * units);
  const compute_t hidden = LOAD(POINTER(workspace), kept + 4 * units);
  const compute_t d_hy = LOAD(POINTER(grad_hy), item);
  const compute_t d_update = d_hy * (old - fresh) * (1 - update) * update;
  const compute_t d_fresh = d_hy * (1 - update) * (1 - fresh * fresh);
  const compute_t d_reset = d_fresh * hidden * (1 - reset) * reset;
  STORE(POINTER(grad_input_gates), GATE(0), d_reset);
  STORE(POINTER(grad_input_gates), GATE(1), d_update);
  STORE(POINTER(grad_input_gates), GATE(2), d_fresh);
  STORE(POINTER(grad_hidden_gates), GATE(0), d_reset);
  STORE(POINTER(grad_hidden_gates), GATE(1), d_update);
  STORE(POINTER(grad_hidden_gates), GATE(2), d_fresh * reset);
  STORE(POINTER(grad_hx), item, d_hy * update);
}
