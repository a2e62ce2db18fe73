// Divisions, multiples and powers of two of counts; `divisor` and `multiple`
// are positive.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>

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

// Whether all are multiples of four, as four elements of memory at once want
// it.
inline bool are_fours(std::initializer_list<int64_t> values) {
  for (const int64_t value : values) {
    if (value % 4 != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace torch_opencl::ops
