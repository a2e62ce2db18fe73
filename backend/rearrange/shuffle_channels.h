// channel_shuffle of images whose channels follow each other, on CPUs.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// False where the generic copy has to do it.
bool shuffle_channels(const at::Tensor& self,
                      const at::Tensor& out,
                      int64_t groups);

}  // namespace torch_opencl::ops
