// Complex transforms of any length along the last dimension.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// The transform of every line of a contiguous complex tensor, without any
// factor. Undefined where VkFFT has no plan.
at::Tensor transform_lines(const at::Tensor& lines, bool forward);

}  // namespace torch_opencl::ops
