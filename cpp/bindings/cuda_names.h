// For programs written for CUDA: torch_opencl.as_cuda().
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace torch_opencl {

void bind_cuda_names(pybind11::module_& m);

}  // namespace torch_opencl
