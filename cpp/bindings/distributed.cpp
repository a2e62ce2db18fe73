#include "distributed.h"

#include "../distributed/backend.h"

#include <torch/csrc/Exceptions.h>

namespace py = pybind11;

namespace torch_opencl {

void bind_distributed(py::module_& m) {
  // torch's own bindings know what a Backend is. A backend written in Python
  // lives as long as what wraps it.
  m.def("_staged_backend",
        torch::wrap_pybind_function(
            [](const c10::intrusive_ptr<c10d::Backend>& inner,
               const std::string& name) -> c10::intrusive_ptr<c10d::Backend> {
              return c10::make_intrusive<distributed::StagedBackend>(inner,
                                                                     name);
            }),
        py::keep_alive<0, 1>());
}

}  // namespace torch_opencl
