// torch_opencl.ElementwiseKernel.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace torch_opencl {

void bind_elementwise_kernels(pybind11::module_& m);

}  // namespace torch_opencl
