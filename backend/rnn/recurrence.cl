// The steps of a recurrent layer in one direction, and their gradients, for
// cpu-class devices. The products with the input are made before, of all steps at
// once; what is left of a step is a product of the state and the pointwise half.
// The weight is in panels of 16 units (panels.clh): forward, panels of each gate's
// units, of as many depths as units; backward, of the transposed weight. A work-item
// walks steps, within them panels, and rows of the batch, ROWS at once. Where it
// has all panels of its rows it can walk all steps, for nobody else reads its state.
// Time and batch lie as their strides say, what is kept for gradients by time.

#include "types.clh"
#include "lanes.clh"
#include "exponential.clh"

DEFINE_EXP_SHIFTED(exponential, lanes_t, as_int16, as_float16)

static inline lanes_t sigmoid(lanes_t x) {
  const lanes_t above = x < -88.0f ? (lanes_t)-88 : x;
  const lanes_t power = exponential(above > 87.0f ? (lanes_t)87 : above, (lanes_t)-1, 0);
  // Where exp(-x) is infinite, a gate is shut: its gradient is 0.
  return x < -88.7f ? (lanes_t)0 : 1 / (1 + power);
}

// PoCL's tanh of a vector is as many calls as elements.
static inline lanes_t tanh_lanes(lanes_t x) {
  const lanes_t above = x < -20.0f ? (lanes_t)-20 : x;
  const lanes_t power = exponential(above > 20.0f ? (lanes_t)20 : above, (lanes_t)2, 0);
  const lanes_t large = 1 - 2 / (1 + power);
  // Cephes' polynomial: a difference of 1 would lose the digits of small results.
  const lanes_t z = x * x;
  lanes_t sum = fma(z, (lanes_t)-5.70498872745e-3f, (lanes_t)2.06390887954e-2f);
  sum = fma(z, sum, (lanes_t)-5.37397155531e-2f);
  sum = fma(z, sum, (lanes_t)1.33314422036e-1f);
  sum = fma(z, sum, (lanes_t)-3.33332819422e-1f);
  return fabs(x) < 0.625f ? fma(sum * z, x, x) : large;
}

#if IS_GRU
#define GATES 3
#define KEPT 4
#elif IS_LSTM
#define GATES 4
#define KEPT 4
#else
#define GATES 1
#define KEPT 0
#endif
#if IS_BACKWARD
#define VECTORS 4
#else
#define VECTORS GATES
#endif

// sums += factors * panels, for VECTORS panels so far apart.
static inline void multiply(lanes_t sums[ROWS][VECTORS], const global float *const *factors,
                            const global float *const *panels, int depth) {
#pragma unroll 2
  for (int k = 0; k < depth; ++k) {
    lanes_t lines[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) lines[v] = vload16(k, panels[v]);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const lanes_t factor = factors[i][k];
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) sums[i][v] = fma(factor, lines[v], sums[i][v]);
    }
  }
}

#define TIME(step) (is_reverse ? steps - 1 - (step) : (step))
#define STEPS                                                                     \
  const int batch, const int units, const int steps, const int first_step,        \
      const int end_step, const int is_reverse, const int rows_of_item,           \
      const int panels_of_item, const ulong gate_time, const ulong gate_batch,    \
      const ulong out_time, const ulong out_batch
#define FOR_ROWS                                                                  \
  for (int first = get_global_id(0) * rows_of_item,                               \
           end = min(batch, first + rows_of_item);                                \
       first < end; first += ROWS)
#define GATE(k) ((size_t)(k) * units + unit)
#define AT(p) load_lanes(p, 0, 1, count)
#define PUT(p, value) store_lanes(p, 0, 1, count, value)

#if !IS_BACKWARD

// `cells` of no time stride are the last state alone.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void recurrence(
    CONST_TENSOR(float, gates), CONST_TENSOR(float, panels),
    CONST_TENSOR(float, bias), CONST_TENSOR(float, hx), CONST_TENSOR(float, cx),
    TENSOR(float, out), TENSOR(float, hy), TENSOR(float, cells),
    TENSOR(float, kept), STEPS, const ulong cell_time) {
  const int blocks = (units + 15) / 16;
  const int first_block = get_global_id(1) * panels_of_item;
  for (int step = first_step; step < end_step; ++step) {
    const size_t time = TIME(step);
    const size_t last = step > 0 ? TIME(step - 1) : 0;
    for (int block = first_block; block < min(blocks, first_block + panels_of_item); ++block) {
      const int unit = block * 16;
      const int count = min(16, units - unit);
      const global float *weights[GATES];
      for (int v = 0; v < GATES; ++v) {
        weights[v] = POINTER(panels) + ((size_t)v * blocks + block) * units * 16;
      }
      FOR_ROWS {
        const global float *states[ROWS];
        lanes_t sums[ROWS][VECTORS];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          const size_t row = min(first + i, end - 1);
          states[i] = step > 0 ? POINTER(out) + last * out_time + row * out_batch
                               : POINTER(hx) + row * units;
#pragma unroll
          for (int v = 0; v < GATES; ++v) {
#if HAS_BIAS
            sums[i][v] = AT(POINTER(bias) + GATE(v));
#else
            sums[i][v] = 0;
#endif
          }
        }
        multiply(sums, states, weights, units);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          const size_t row = first + i;
          if (row >= end) break;
          const global float *in = POINTER(gates) + time * gate_time + row * gate_batch;
          global float *keep = POINTER(kept) + (time * batch + row) * KEPT * units;
#if IS_LSTM
          const lanes_t input = sigmoid(AT(in + GATE(0)) + sums[i][0]);
          const lanes_t forget = sigmoid(AT(in + GATE(1)) + sums[i][1]);
          const lanes_t cell = tanh_lanes(AT(in + GATE(2)) + sums[i][2]);
          const lanes_t open = sigmoid(AT(in + GATE(3)) + sums[i][3]);
          const size_t place = row * units + unit;
          const lanes_t old = AT(step > 0 ? POINTER(cells) + last * cell_time + place
                                          : POINTER(cx) + place);
          const lanes_t state = forget * old + input * cell;
          const lanes_t result = open * tanh_lanes(state);
          PUT(POINTER(cells) + time * cell_time + place, state);
#if IS_KEPT
          PUT(keep + GATE(0), input);
          PUT(keep + GATE(1), forget);
          PUT(keep + GATE(2), cell);
          PUT(keep + GATE(3), open);
#endif
#elif IS_GRU
          const lanes_t reset = sigmoid(AT(in + GATE(0)) + sums[i][0]);
          const lanes_t update = sigmoid(AT(in + GATE(1)) + sums[i][1]);
          const lanes_t fresh = tanh_lanes(AT(in + GATE(2)) + reset * sums[i][2]);
          const lanes_t result = fresh + update * (AT(states[i] + unit) - fresh);
#if IS_KEPT
          PUT(keep + GATE(0), reset);
          PUT(keep + GATE(1), update);
          PUT(keep + GATE(2), fresh);
          PUT(keep + GATE(3), sums[i][2]);
#endif
#elif IS_RELU
          const lanes_t sum = AT(in + unit) + sums[i][0];
          const lanes_t result = sum < 0 ? (lanes_t)0 : sum;
#else
          const lanes_t result = tanh_lanes(AT(in + unit) + sums[i][0]);
#endif
          PUT(POINTER(out) + time * out_time + row * out_batch + unit, result);
          if (step == steps - 1) PUT(POINTER(hy) + row * units + unit, result);
        }
      }
    }
  }
}

#else

// The last step first. grad_hidden, a GRU's second factor of the products, is
// grad_gates elsewhere; carry holds what passes a step beside the product: a
// GRU's state or an LSTM's cell. An undefined gradient is one of zeros.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void recurrence_backward(
    CONST_TENSOR(float, grad_out), CONST_TENSOR(float, grad_hy),
    CONST_TENSOR(float, grad_cy), CONST_TENSOR(float, panels),
    CONST_TENSOR(float, hx), CONST_TENSOR(float, cx), CONST_TENSOR(float, out),
    CONST_TENSOR(float, cells), CONST_TENSOR(float, kept),
    TENSOR(float, grad_gates), TENSOR(float, grad_hidden), TENSOR(float, carry),
    STEPS, const int has_grad_out, const int has_grad_hy, const int has_grad_cy) {
  const int blocks = (units + 15) / 16;
  const int first_block = get_global_id(1) * panels_of_item;
  const int end_block = min(blocks, first_block + panels_of_item);
  for (int step = end_step - 1; step >= first_step; --step) {
    const size_t time = TIME(step);
    const int is_last = step == steps - 1;
    const size_t next = is_last ? 0 : TIME(step + 1);
    const size_t before = step > 0 ? TIME(step - 1) : 0;
    for (int block = first_block; block < end_block; block += VECTORS) {
      const global float *weights[VECTORS];
      for (int v = 0; v < VECTORS; ++v) {
        weights[v] = POINTER(panels) +
                     (size_t)min(block + v, blocks - 1) * units * GATES * 16;
      }
      FOR_ROWS {
        const global float *factors[ROWS];
        lanes_t sums[ROWS][VECTORS];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          factors[i] = POINTER(grad_hidden) + next * gate_time +
                       (size_t)min(first + i, end - 1) * gate_batch;
#pragma unroll
          for (int v = 0; v < VECTORS; ++v) sums[i][v] = 0;
        }
        multiply(sums, factors, weights, is_last ? 0 : units * GATES);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          const size_t row = first + i;
          if (row >= end) break;
#pragma unroll
          for (int v = 0; v < VECTORS; ++v) {
            if (block + v >= end_block) break;
            const int unit = (block + v) * 16;
            const int count = min(16, units - unit);
            const size_t place = row * units + unit;
            const size_t out_place = time * out_time + row * out_batch + unit;
            global float *d_in = POINTER(grad_gates) + time * gate_time + row * gate_batch;
            const global float *keep = POINTER(kept) + (time * batch + row) * KEPT * units;
            lanes_t d = sums[i][v];
            if (has_grad_out) d += AT(POINTER(grad_out) + out_place);
            if (is_last && has_grad_hy) d += AT(POINTER(grad_hy) + place);
#if IS_LSTM
            const lanes_t input = AT(keep + GATE(0));
            const lanes_t forget = AT(keep + GATE(1));
            const lanes_t cell = AT(keep + GATE(2));
            const lanes_t open = AT(keep + GATE(3));
            const size_t cell_time = (size_t)batch * units;
            const lanes_t state = tanh_lanes(AT(POINTER(cells) + time * cell_time + place));
            const lanes_t old = AT(step > 0 ? POINTER(cells) + before * cell_time + place
                                            : POINTER(cx) + place);
            lanes_t d_state = d * open * (1 - state * state);
            if (!is_last) d_state += AT(POINTER(carry) + place);
            else if (has_grad_cy) d_state += AT(POINTER(grad_cy) + place);
            PUT(d_in + GATE(0), d_state * cell * (1 - input) * input);
            PUT(d_in + GATE(1), d_state * old * (1 - forget) * forget);
            PUT(d_in + GATE(2), d_state * input * (1 - cell * cell));
            PUT(d_in + GATE(3), d * state * (1 - open) * open);
            PUT(POINTER(carry) + place, d_state * forget);
#elif IS_GRU
            if (!is_last) d += AT(POINTER(carry) + place);
            const lanes_t reset = AT(keep + GATE(0));
            const lanes_t update = AT(keep + GATE(1));
            const lanes_t fresh = AT(keep + GATE(2));
            const lanes_t hidden = AT(keep + GATE(3));
            const lanes_t old = AT(
                step > 0 ? POINTER(out) + before * out_time + row * out_batch + unit
                         : POINTER(hx) + place);
            const lanes_t d_update = d * (old - fresh) * (1 - update) * update;
            const lanes_t d_fresh = d * (1 - update) * (1 - fresh * fresh);
            const lanes_t d_reset = d_fresh * hidden * (1 - reset) * reset;
            global float *d_hidden =
                POINTER(grad_hidden) + time * gate_time + row * gate_batch;
            PUT(d_in + GATE(0), d_reset);
            PUT(d_in + GATE(1), d_update);
            PUT(d_in + GATE(2), d_fresh);
            PUT(d_hidden + GATE(0), d_reset);
            PUT(d_hidden + GATE(1), d_update);
            PUT(d_hidden + GATE(2), d_fresh * reset);
            PUT(POINTER(carry) + place, d * update);
#else
            const lanes_t result = AT(POINTER(out) + out_place);
#if IS_RELU
            PUT(d_in + unit, result <= 0 ? (lanes_t)0 : d);
#else
            PUT(d_in + unit, d * (1 - result * result));
#endif
#endif
          }
        }
      }
    }
  }
}
#endif
