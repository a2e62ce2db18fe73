// Bindings for kernels of users and for memory shared with other libraries.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_opencl {

void bind_user_kernels(pybind11::module_& m);

}  // namespace torch_opencl
