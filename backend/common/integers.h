// Divisions and multiples of counts; `divisor` and `multiple` are positive.
#pragma once

#include <cstdint>

namespace torch_opencl::ops {

constexpr int64_t ceil_div(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace torch_opencl::ops
