// The steps of a recurrent layer in one direction, and their gradients, for GPUs.
// recurrence.cl says what is computed. A work-group owns 4 rows of the batch and
// UNITS units at once; PARTS of its items share the depth of a unit's product,
// which is added up in their order. A group that owns all units of its rows walks
// all steps: nobody else reads its states.

#include "types.clh"
#include "loads_ahead.clh"

#if IS_GRU
#define GATES 3
#elif IS_LSTM
#define GATES 4
#else
#define GATES 1
#endif
#define KEPT 4
#define CHUNK 256  // of the depth, in local memory at once
#define PARTS (CHUNK / UNITS)

#define TIME(step) (is_reverse ? steps - 1 - (step) : (step))
#define STEPS                                                                  \
  const int batch, const int units, const int steps, const int first_step,     \
      const int end_step, const int is_reverse, const int blocks_of_group,     \
      const ulong gate_time, const ulong gate_batch, const ulong out_time,     \
      const ulong out_batch
#define GATE(k) ((size_t)(k) * units + unit)
#define FOR_BLOCKS                                                             \
  for (int block = get_group_id(1) * blocks_of_group, end_block = block + blocks_of_group; \
       block < end_block; ++block)

// Of 4 rows the k-th element, the last row for those beyond the batch.
static inline float4 column_of(const global float *rows, size_t stride, int first, int batch,
                               int k) {
  const int end = batch - 1;
  return (float4)(rows[min(first, end) * stride + k], rows[min(first + 1, end) * stride + k],
                  rows[min(first + 2, end) * stride + k], rows[min(first + 3, end) * stride + k]);
}

#if !IS_BACKWARD

#if GATES == 4
typedef float4 gates_t;
#define LOAD_GATES(p, i) vload4(i, p)
#elif GATES == 3
typedef float3 gates_t;
#define LOAD_GATES(p, i) vload3(i, p)
#else
typedef float gates_t;
#define LOAD_GATES(p, i) (p)[i]
#endif

static inline void put_gates(local float *to, gates_t sums) {
#if GATES == 1
  to[0] = sums;
#else
  to[0] = sums.x;
  to[UNITS] = sums.y;
  to[2 * UNITS] = sums.z;
#if GATES == 4
  to[3 * UNITS] = sums.w;
#endif
#endif
}

static inline float total_of(const local float *partial) {
  float sum = 0;
  for (int part = 0; part < PARTS; ++part) sum += partial[part * 4 * GATES * UNITS];
  return sum;
}

static inline float sigmoid(float x) {
  return 1 / (1 + exp(-x));
}

// The lines of a block of the depth, while the block ahead of it is multiplied: loads
// that are used at once are waited for one by one.
#define AHEAD 4
#define LOAD_AHEAD(from)                                                          \
  _Pragma("unroll") for (int i = 0; i < AHEAD; ++i) {                             \
    const int at = first + min((from) + i * PARTS, depth - 1);                    \
    ahead[i] = LOAD_GATES(column + (size_t)at * units * GATES, 0);                \
  }

#if HAS_BIAS
#define HIDDEN(k) (total_of(mine + (k) * UNITS) + POINTER(bias)[GATE(k)])
#else
#define HIDDEN(k) total_of(mine + (k) * UNITS)
#endif

// `weight` is (depth, unit, gate). `cells` of no time stride are the last state.
kernel __attribute__((reqd_work_group_size(CHUNK, 1, 1))) void recurrence_groups(
    CONST_TENSOR(float, gates), CONST_TENSOR(float, weight), CONST_TENSOR(float, bias),
    CONST_TENSOR(float, hx), CONST_TENSOR(float, cx), TENSOR(float, out), TENSOR(float, hy),
    TENSOR(float, cells), TENSOR(float, kept), STEPS, const ulong cell_time) {
  local float4 states[CHUNK];
  local float partial[PARTS * 4 * GATES * UNITS];
  const int item = get_local_id(0);
  const int lane = item % UNITS;
  const int part = item / UNITS;
  const int first_row = get_group_id(0) * 4;
  for (int step = first_step; step < end_step; ++step) {
    const size_t time = TIME(step);
    const size_t last = step > 0 ? TIME(step - 1) : 0;
    const global float *state = step > 0 ? POINTER(out) + last * out_time : POINTER(hx);
    const size_t state_stride = step > 0 ? out_batch : units;
    FOR_BLOCKS {
      const int unit = block * UNITS + lane;
      const global float *column = POINTER(weight) + (size_t)min(unit, units - 1) * GATES;
      gates_t sums0 = 0, sums1 = 0, sums2 = 0, sums3 = 0;
      for (int first = 0; first < units; first += CHUNK) {
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        states[item] = column_of(state, state_stride, first_row, batch,
                                 min(first + item, units - 1));
        barrier(CLK_LOCAL_MEM_FENCE);
        const int depth = min(CHUNK, units - first);
        gates_t ahead[AHEAD];
        LOAD_AHEAD(part)
        for (int k = part; k < depth; k += AHEAD * PARTS) {
          gates_t lines[AHEAD];
#pragma unroll
          for (int i = 0; i < AHEAD; ++i) lines[i] = ahead[i];
          LOAD_AHEAD(k + AHEAD * PARTS)
#pragma unroll
          for (int i = 0; i < AHEAD; ++i) {
            if (k + i * PARTS >= depth) continue;
            const float4 factors = states[k + i * PARTS];
            sums0 = fma((gates_t)(factors.x), lines[i], sums0);
            sums1 = fma((gates_t)(factors.y), lines[i], sums1);
            sums2 = fma((gates_t)(factors.z), lines[i], sums2);
            sums3 = fma((gates_t)(factors.w), lines[i], sums3);
          }
        }
      }
      local float *own = partial + part * 4 * GATES * UNITS + lane;
      put_gates(own, sums0);
      put_gates(own + GATES * UNITS, sums1);
      put_gates(own + 2 * GATES * UNITS, sums2);
      put_gates(own + 3 * GATES * UNITS, sums3);
      barrier(CLK_LOCAL_MEM_FENCE);
      for (int r = part; r < min(4, batch - first_row); r += PARTS) {
        if (unit >= units) break;
        const size_t row = first_row + r;
        const local float *mine = partial + r * GATES * UNITS + lane;
        const global float *in = POINTER(gates) + time * gate_time + row * gate_batch;
        global float *keep = POINTER(kept) + (time * batch + row) * KEPT * units;
        const size_t place = row * units + unit;
#if IS_LSTM
        const float input = sigmoid(in[GATE(0)] + HIDDEN(0));
        const float forget = sigmoid(in[GATE(1)] + HIDDEN(1));
        const float cell = tanh(in[GATE(2)] + HIDDEN(2));
        const float open = sigmoid(in[GATE(3)] + HIDDEN(3));
        const float old = step > 0 ? POINTER(cells)[last * cell_time + place]
                                   : POINTER(cx)[place];
        const float after = forget * old + input * cell;
        const float result = open * tanh(after);
        POINTER(cells)[time * cell_time + place] = after;
#if IS_KEPT
        keep[GATE(0)] = input;
        keep[GATE(1)] = forget;
        keep[GATE(2)] = cell;
        keep[GATE(3)] = open;
#endif
#elif IS_GRU
        const float reset = sigmoid(in[GATE(0)] + HIDDEN(0));
        const float update = sigmoid(in[GATE(1)] + HIDDEN(1));
        const float hidden = HIDDEN(2);
        const float fresh = tanh(in[GATE(2)] + reset * hidden);
        const float result = fresh + update * (state[row * state_stride + unit] - fresh);
#if IS_KEPT
        keep[GATE(0)] = reset;
        keep[GATE(1)] = update;
        keep[GATE(2)] = fresh;
        keep[GATE(3)] = hidden;
#endif
#elif IS_RELU
        const float sum = in[unit] + HIDDEN(0);
        const float result = sum < 0 ? 0 : sum;  // a NaN stays
#else
        const float result = tanh(in[unit] + HIDDEN(0));
#endif
        POINTER(out)[time * out_time + row * out_batch + unit] = result;
        if (step == steps - 1) POINTER(hy)[place] = result;
      }
    }
  }
}

#else

// The last step first; `weight` is (gate and unit, depth). grad_hidden and carry are
// as in recurrence.cl. An undefined gradient is one of zeros.
kernel __attribute__((reqd_work_group_size(CHUNK, 1, 1))) void recurrence_groups_backward(
    CONST_TENSOR(float, grad_out), CONST_TENSOR(float, grad_hy), CONST_TENSOR(float, grad_cy),
    CONST_TENSOR(float, weight), CONST_TENSOR(float, hx), CONST_TENSOR(float, cx),
    CONST_TENSOR(float, out), CONST_TENSOR(float, cells), CONST_TENSOR(float, kept),
    TENSOR(float, grad_gates), TENSOR(float, grad_hidden), TENSOR(float, carry), STEPS,
    const int has_grad_out, const int has_grad_hy, const int has_grad_cy) {
  local float4 factors[CHUNK];
  local float partial[PARTS * 4 * UNITS];
  const int item = get_local_id(0);
  const int lane = item % UNITS;
  const int part = item / UNITS;
  const int first_row = get_group_id(0) * 4;
  for (int step = end_step - 1; step >= first_step; --step) {
    const size_t time = TIME(step);
    const int is_last = step == steps - 1;
    const size_t next = is_last ? 0 : TIME(step + 1);
    const size_t before = step > 0 ? TIME(step - 1) : 0;
    const int lines = is_last ? 0 : units * GATES;
    FOR_BLOCKS {
      const int unit = block * UNITS + lane;
      const global float *column = POINTER(weight) + min(unit, units - 1);
      float4 sums = 0;
      for (int first = 0; first < lines; first += CHUNK) {
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        factors[item] = column_of(POINTER(grad_hidden) + next * gate_time, gate_batch, first_row,
                                  batch, min(first + item, lines - 1));
        barrier(CLK_LOCAL_MEM_FENCE);
        const int depth = min(CHUNK, lines - first);
        FOR_LOADS_AHEAD(
            int, k, part, depth, PARTS,
            const float line = column[(size_t)(first + k) * units];
            sums = fma(factors[k], (float4)(line), sums);)
      }
      barrier(CLK_LOCAL_MEM_FENCE);
      local float *own = partial + part * 4 * UNITS + lane;
      own[0] = sums.x;
      own[UNITS] = sums.y;
      own[2 * UNITS] = sums.z;
      own[3 * UNITS] = sums.w;
      barrier(CLK_LOCAL_MEM_FENCE);
      for (int r = part; r < min(4, batch - first_row); r += PARTS) {
        if (unit >= units) break;
        const size_t row = first_row + r;
        const size_t place = row * units + unit;
        const size_t out_place = time * out_time + row * out_batch + unit;
        global float *d_in = POINTER(grad_gates) + time * gate_time + row * gate_batch;
        const global float *keep = POINTER(kept) + (time * batch + row) * KEPT * units;
        float d = 0;
        for (int p = 0; p < PARTS; ++p) d += partial[(p * 4 + r) * UNITS + lane];
        if (has_grad_out) d += POINTER(grad_out)[out_place];
        if (is_last && has_grad_hy) d += POINTER(grad_hy)[place];
#if IS_LSTM
        const float input = keep[GATE(0)];
        const float forget = keep[GATE(1)];
        const float cell = keep[GATE(2)];
        const float open = keep[GATE(3)];
        const size_t cell_time = (size_t)batch * units;
        const float state = tanh(POINTER(cells)[time * cell_time + place]);
        const float old = step > 0 ? POINTER(cells)[before * cell_time + place]
                                   : POINTER(cx)[place];
        float d_state = d * open * (1 - state * state);
        if (!is_last) d_state += POINTER(carry)[place];
        else if (has_grad_cy) d_state += POINTER(grad_cy)[place];
        d_in[GATE(0)] = d_state * cell * (1 - input) * input;
        d_in[GATE(1)] = d_state * old * (1 - forget) * forget;
        d_in[GATE(2)] = d_state * input * (1 - cell * cell);
        d_in[GATE(3)] = d * state * (1 - open) * open;
        POINTER(carry)[place] = d_state * forget;
#elif IS_GRU
        if (!is_last) d += POINTER(carry)[place];
        const float reset = keep[GATE(0)];
        const float update = keep[GATE(1)];
        const float fresh = keep[GATE(2)];
        const float hidden = keep[GATE(3)];
        const float old = step > 0 ? POINTER(out)[before * out_time + row * out_batch + unit]
                                   : POINTER(hx)[place];
        const float d_update = d * (old - fresh) * (1 - update) * update;
        const float d_fresh = d * (1 - update) * (1 - fresh * fresh);
        const float d_reset = d_fresh * hidden * (1 - reset) * reset;
        global float *d_hidden = POINTER(grad_hidden) + time * gate_time + row * gate_batch;
        d_in[GATE(0)] = d_reset;
        d_in[GATE(1)] = d_update;
        d_in[GATE(2)] = d_fresh;
        d_hidden[GATE(0)] = d_reset;
        d_hidden[GATE(1)] = d_update;
        d_hidden[GATE(2)] = d_fresh * reset;
        POINTER(carry)[place] = d * update;
#else
        const float result = POINTER(out)[out_place];
#if IS_RELU
        d_in[unit] = result <= 0 ? 0 : d;
#else
        d_in[unit] = d * (1 - result * result);
#endif
#endif
      }
    }
  }
}
#endif
