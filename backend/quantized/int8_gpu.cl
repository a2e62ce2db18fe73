// Products of FEW rows by int8 weights (lines, depth) for gpu-class devices, as an LLM
// decodes: out = x W^T * scale, or with IS_INT the exact sums as int32.
//
// A work-group of 128 is 4 rows of 32 lanes. Lanes run along the depth, 8 bytes each, of
// the LINES lines that a row of lanes has; what they summed is added through local memory,
// in order.

#include "types.clh"

#define ROW_LANES 32
#define LANE_ROWS 4
#define LINES 2
#define WIDTH 8

#if IS_INT
typedef int sum_t;
typedef int result_t;
typedef int8 vector_t;
#define CONVERT(v) convert_int8(v)
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#else
typedef float sum_t;
typedef storage_t result_t;
typedef float8 vector_t;
#define CONVERT(v) convert_float8(v)
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)
#endif
typedef CONCAT(storage_, X_DTYPE) x_t;

inline vector_t load8_int8(const global char *p) { return CONVERT(vload8(0, p)); }
inline vector_t load8_uint8(const global uchar *p) { return CONVERT(vload8(0, p)); }
#if !IS_INT
inline float8 load8_float32(const global float *p) { return vload8(0, p); }
inline float8 load8_bfloat16(const global ushort *p) {
  return as_float8(convert_uint8(vload8(0, p)) << 16);
}
inline float8 load8_float16(const global ushort *p) {
  return (float8)(load_float16(p, 0), load_float16(p, 1), load_float16(p, 2),
                  load_float16(p, 3), load_float16(p, 4), load_float16(p, 5),
                  load_float16(p, 6), load_float16(p, 7));
}
#endif
#define LOAD_X(p) CONCAT(load8_, X_DTYPE)(p)
#define LOAD_ONE_X(p, i) CONCAT(load_, X_DTYPE)(p, i)

inline sum_t total_of(vector_t v) {
  return ((v.s0 + v.s4) + (v.s2 + v.s6)) + ((v.s1 + v.s5) + (v.s3 + v.s7));
}

kernel __attribute__((reqd_work_group_size(ROW_LANES * LANE_ROWS, 1, 1)))
void int8_few(CONST_TENSOR(x_t, x), CONST_TENSOR(char, weight), CONST_TENSOR(storage_t, scale),
              TENSOR(result_t, out), const int lines, const int depth, const long x_stride,
              const long line_stride, const long scale_stride) {
  const int lane = get_local_id(0) % ROW_LANES;
  const int lane_row = get_local_id(0) / ROW_LANES;
  const int begin = get_group_id(0) * LANE_ROWS * LINES;
  const global char *line[LINES];
  vector_t sums[FEW][LINES];
#pragma unroll
  for (int l = 0; l < LINES; ++l) {
    line[l] = POINTER(weight) + min(begin + lane_row * LINES + l, lines - 1) * line_stride;
#pragma unroll
    for (int f = 0; f < FEW; ++f) sums[f][l] = 0;
  }
  const int whole = depth / WIDTH * WIDTH;
  for (int k = lane * WIDTH; k < whole; k += ROW_LANES * WIDTH) {
    vector_t weights[LINES];
#pragma unroll
    for (int l = 0; l < LINES; ++l) weights[l] = load8_int8(line[l] + k);
#pragma unroll
    for (int f = 0; f < FEW; ++f) {
      const vector_t factors = LOAD_X(POINTER(x) + f * x_stride + k);
#pragma unroll
      for (int l = 0; l < LINES; ++l) {
        sums[f][l] = MULTIPLY_ADD(factors, weights[l], sums[f][l]);
      }
    }
  }
  local sum_t parts[FEW * LINES][LANE_ROWS][ROW_LANES + 1];
#pragma unroll
  for (int f = 0; f < FEW; ++f) {
#pragma unroll
    for (int l = 0; l < LINES; ++l) {
      sum_t total = total_of(sums[f][l]);
      if (whole + lane < depth) {
        total += (sum_t)line[l][whole + lane] *
                 (sum_t)LOAD_ONE_X(POINTER(x), f * x_stride + whole + lane);
      }
      parts[f * LINES + l][lane_row][lane] = total;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const int i = get_local_id(0);
  if (i < FEW * LINES * LANE_ROWS) {
    const int own = i % (LINES * LANE_ROWS);
    const int f = i / (LINES * LANE_ROWS);
    sum_t total = 0;
    for (int l = 0; l < ROW_LANES; ++l) total += parts[f * LINES + own % LINES][own / LINES][l];
    if (begin + own < lines) {
      const size_t at = (size_t)f * lines + begin + own;
#if IS_INT
      POINTER(out)[at] = total;
#else
      STORE(POINTER(out), at, total * LOAD(POINTER(scale), (begin + own) * scale_stride));
#endif
    }
  }
}
