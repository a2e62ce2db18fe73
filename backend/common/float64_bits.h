// float64 and complex128 where a device has none: their bits as integers.
#pragma once

#include "../../cpp/aten/fallback.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>

namespace torch_opencl::ops {

using aten::lacks_float64;

// Elements as integers of their size; a complex number is two.
inline at::Tensor float64_bits(const at::Tensor& tensor) {
  return (tensor.is_complex() ? at::view_as_real(tensor) : tensor)
      .view(at::kLong);
}

}  // namespace torch_opencl::ops
