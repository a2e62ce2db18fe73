// Kernels that torch.compile generates (python/torch_opencl/inductor).
#pragma once

#include <pybind11/pybind11.h>

namespace torch_opencl {

void bind_compiled_kernels(pybind11::module_& m);

}  // namespace torch_opencl
