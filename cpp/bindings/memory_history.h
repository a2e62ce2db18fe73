// torch.opencl.memory._record_memory_history: who allocated what, and when.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace torch_opencl {

void bind_memory_history(pybind11::module_& m);

}  // namespace torch_opencl
