// Products of many rows by weights of a few bits, a block of lines at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace torch_opencl::ops {

// The most rows of a product that reads the weights once and converts them in
// registers.
constexpr int64_t kFewQuantizedRows = 8;

// out (rows, lines) = self (rows, depth) W^T in float32. `dequantize` writes
// the lines of W from the given one on to a float32 matrix.
void multiply_dequantized(
    const at::Tensor& self,
    const at::Tensor& out,
    const std::function<void(int64_t first, const at::Tensor& lines)>&
        dequantize);

}  // namespace torch_opencl::ops
