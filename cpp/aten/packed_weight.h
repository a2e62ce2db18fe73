// Tensors that a kernel derives from a weight alone, kept between calls.
#pragma once

#include "../runtime/packed_weight_cache.h"
#include "launch.h"

#include <ATen/core/Tensor.h>

#include <functional>

namespace torch_opencl::aten {

// What `pack` makes of `weight`, kept from its second use on until something is
// written to the weight's storage. `packer`, a kernel's source, and `variant`
// tell the packed values of one weight apart.
at::Tensor packed_weight(const at::Tensor& weight,
                         const KernelSource& packer,
                         std::initializer_list<int64_t> variant,
                         const std::function<at::Tensor()>& pack);

}  // namespace torch_opencl::aten
