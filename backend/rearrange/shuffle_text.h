// Text that permutes values in registers, for kernels that the host writes.
#pragma once

#include "../common/lanes.h"

#include <array>
#include <string>
#include <vector>

namespace torch_opencl::ops {

// 16 values of a step, by numbers that tell them apart; lies in memory at
// `address` or in registers.
struct ShuffledVector {
  std::string address;
  std::array<int, kLanes> values;
};
using ShuffledVectors = std::vector<ShuffledVector>;

// Calls make(start) for vectors that cover `length` >= 16 values; the last may
// overlap another.
template <class Make>
void cover_by_vectors(int length, const Make& make) {
  for (int next = 0; next < length; next += kLanes)
    make(next < length - kLanes ? next : length - kLanes);
}

// Loads the vectors of the first order, shuffles them from each order into the
// next, and stores those of the last: LOAD_VECTOR(address) and
// STORE_VECTOR(value, address) of vector_t.
std::string shuffle_text(const std::vector<ShuffledVectors>& orders);

}  // namespace torch_opencl::ops
