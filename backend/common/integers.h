// Divisions, multiples and powers of two of counts; `divisor` and `multiple`
// are positive.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace torch_opencl::ops {

constexpr int64_t ceil_div(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

// The smallest power of two that is not below `value`; 1 of 0.
constexpr int64_t power_of_two_from(int64_t value) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
}

}  // namespace torch_opencl::ops
