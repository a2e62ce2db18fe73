// Pointwise ops of the copy family; they belong to no aten table row.
#pragma once

#include "../pointwise/pointwise.h"

namespace torch_opencl::ops {

inline constexpr PointwiseOp kCopy{"copy_", "self", "", "", "self", "", false};
inline constexpr PointwiseOp kFill{
    "fill_", "value", "", "", "", "value", false};

}  // namespace torch_opencl::ops
