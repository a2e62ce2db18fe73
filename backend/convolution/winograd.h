// What the forward and the weight's gradient by Winograd's F(4x4, 3x3) share.
#pragma once

#include "convolution.h"

namespace torch_opencl::ops {

constexpr int64_t kWinogradTile = 4;
constexpr int64_t kFrequencies = 36;
// Products of float32 are summed in shorter runs than elsewhere: the transforms
// of the sums magnify their rounding.
constexpr int64_t kWinogradSumBlock = 64;

inline int32_t as_int(int64_t value) {
  return static_cast<int32_t>(value);
}

struct Tiling {
  int64_t rows;
  int64_t columns;

  int64_t tiles() const { return rows * columns; }
};
inline Tiling tiling_of(const ConvolutionProblem& p) {
  return {ceil_div(p.output[1], kWinogradTile),
          ceil_div(p.output[2], kWinogradTile)};
}

// A matrix for each frequency, in the compute type.
struct FrequencyMatrices {
  at::Tensor values;
  int64_t row_stride;
  int64_t frequency_stride;
};
// Rows have space for a multiple of `width` columns.
FrequencyMatrices empty_frequency_matrices(const at::Tensor& on,
                                           int64_t rows,
                                           int64_t columns,
                                           int64_t width);

}  // namespace torch_opencl::ops
