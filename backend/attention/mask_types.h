// What nn.TransformerEncoder's fused ops call the kinds of a mask.
#pragma once

#include <cstdint>

namespace torch_opencl::ops {

// Hidden keys, (batch, keys), concern all heads and queries.
constexpr int64_t kPaddingMask = 1;

}  // namespace torch_opencl::ops
