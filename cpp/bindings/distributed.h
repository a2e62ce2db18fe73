// torch.distributed's backend: torch_opencl.distributed.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace torch_opencl {

void bind_distributed(pybind11::module_& m);

}  // namespace torch_opencl
