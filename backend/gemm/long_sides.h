// Products with a side too long for kernels, which count lines in ints.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// out = alpha * left right + beta * self, of batches of matrices.
using MultiplyBatches = void(const at::Tensor& left,
                             const at::Tensor& right,
                             const at::Tensor& self,
                             const at::Scalar& beta,
                             const at::Scalar& alpha,
                             const at::Tensor& out);

// Calls `multiply` for parts of such a product; false: no side is so long.
bool multiply_long_sides(MultiplyBatches& multiply,
                         const at::Tensor& left,
                         const at::Tensor& right,
                         const at::Tensor& self,
                         const at::Scalar& beta,
                         const at::Scalar& alpha,
                         const at::Tensor& out);

}  // namespace torch_opencl::ops
