// Pointwise ops of the copy family; they belong to no aten table row.
#pragma once

#include "../pointwise/pointwise.h"

namespace torch_opencl::ops {

inline constexpr PointwiseOp kCopy{.name = "copy_",
                                   .expression = "self",
                                   .inputs = "self",
                                   .is_lanewise = true};
inline constexpr PointwiseOp kFill{.name = "fill_",
                                   .expression = "value",
                                   .scalars = "value",
                                   .is_lanewise = true,
                                   .checks_scalars = true};

}  // namespace torch_opencl::ops
