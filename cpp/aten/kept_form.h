// Tensors that a kernel derives from a weight alone, kept between calls.
#pragma once

#include "../runtime/forms.h"
#include "launch.h"

#include <ATen/core/Tensor.h>

#include <functional>

namespace torch_opencl::aten {

// What `make` makes of `weight`, kept from its second use on until something
// may have been written to the weight's storage. Its kernel takes the weight by
// arg_to_read. `maker`, a kernel's source, and `variant` tell the forms of one
// weight apart.
at::Tensor kept_form(const at::Tensor& weight,
                     const KernelSource& maker,
                     std::initializer_list<int64_t> variant,
                     const std::function<at::Tensor()>& make);

}  // namespace torch_opencl::aten
