// Products of FEW rows by int8 weights (lines, depth) for cpu-class devices, as an LLM
// decodes: out = x W^T * scale, or with IS_INT the exact sums as int32.
//
// Vectors run along the depth. A work-item has ROWS lines of the weights, as many streams,
// and converts what it reads in registers. A block of 256 steps is summed in float32,
// where products of bytes are exact, and added to totals.

#include "types.clh"
#include "lanes.clh"

#define SUM_BLOCK 256

#if IS_INT
typedef int16 total_t;
typedef int sum_t;
typedef int result_t;
#define ADD_BLOCK(total, block) total += convert_int16(block)
#else
typedef float16 total_t;
typedef float sum_t;
typedef storage_t result_t;
#define ADD_BLOCK(total, block) total += block
#endif

typedef CONCAT(storage_, X_DTYPE) x_t;
inline float16 load_lanes_int8(const global char *p) { return convert_float16(vload16(0, p)); }
inline float16 load_lanes_uint8(const global uchar *p) {
  return convert_float16(vload16(0, p));
}
#define LOAD_X(p) CONCAT(load_lanes_, X_DTYPE)(p)
#define LOAD_ONE_X(p, i) CONCAT(load_, X_DTYPE)(p, i)

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void int8_few(CONST_TENSOR(x_t, x), CONST_TENSOR(char, weight), CONST_TENSOR(storage_t, scale),
              TENSOR(result_t, out), const int lines, const int depth, const long x_stride,
              const long line_stride, const long scale_stride) {
  const int first = get_global_id(0) * ROWS;
  const global char *line[ROWS];
  total_t totals[ROWS][FEW];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    line[r] = POINTER(weight) + min(first + r, lines - 1) * line_stride;
#pragma unroll
    for (int f = 0; f < FEW; ++f) totals[r][f] = 0;
  }
  const int whole = depth / 16 * 16;
  for (int k = 0; k < whole;) {
    float16 sums[ROWS][FEW];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int f = 0; f < FEW; ++f) sums[r][f] = 0;
    }
    for (const int end = min(whole, k + SUM_BLOCK * 16); k < end; k += 16) {
      float16 factors[FEW];
#pragma unroll
      for (int f = 0; f < FEW; ++f) factors[f] = LOAD_X(POINTER(x) + f * x_stride + k);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const float16 weights = load_lanes_int8(line[r] + k);
#pragma unroll
        for (int f = 0; f < FEW; ++f) sums[r][f] = fma(weights, factors[f], sums[r][f]);
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int f = 0; f < FEW; ++f) ADD_BLOCK(totals[r][f], sums[r][f]);
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (first + r < lines) {
#pragma unroll
      for (int f = 0; f < FEW; ++f) {
        sum_t total = LANES_SUM(totals[r][f]);
        for (int k = whole; k < depth; ++k) {
          total += (sum_t)line[r][k] * (sum_t)LOAD_ONE_X(POINTER(x), f * x_stride + k);
        }
        const size_t at = (size_t)f * lines + first + r;
#if IS_INT
        POINTER(out)[at] = total;
#else
        STORE(POINTER(out), at, total * LOAD(POINTER(scale), (first + r) * scale_stride));
#endif
      }
    }
  }
}
