// Numbers as values of float16 and bfloat16.
#pragma once

#include <c10/core/ScalarType.h>

namespace torch_opencl::ops {

// `value` as `type` holds it, where that is a half type. Overflow gives
// infinity, as in kernels.
inline double rounded_to_half(double value, at::ScalarType type) {
  const auto number = static_cast<float>(value);
  return type == at::kHalf       ? static_cast<float>(c10::Half(number))
         : type == at::kBFloat16 ? static_cast<float>(c10::BFloat16(number))
                                 : value;
}

}  // namespace torch_opencl::ops
