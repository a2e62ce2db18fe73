// Products of complex matrices by one real product.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

namespace torch_opencl::ops {

// out = beta * self + alpha * left @ right, in three dimensions; `self` has the
// sizes of `out`, and is not read where beta is 0.
void complex_product(const at::Tensor& left,
                     const at::Tensor& right,
                     const at::Tensor& self,
                     const at::Scalar& beta,
                     const at::Scalar& alpha,
                     const at::Tensor& out);

}  // namespace torch_opencl::ops
