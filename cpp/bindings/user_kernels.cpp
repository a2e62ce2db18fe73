#include "user_kernels.h"

#include "../aten/launch.h"
#include "../device/stream.h"
#include "../runtime/caching_allocator.h"
#include "../runtime/packed_weight_cache.h"
#include "elementwise_kernels.h"
#include "kernel_sources.h"
#include "raw_kernels.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>

namespace py = pybind11;

namespace torch_opencl {

namespace {

using torch::wrap_pybind_function;

// (cl_context, cl_command_queue) of the current stream.
std::pair<intptr_t, intptr_t> queue_handles(int device_index) {
  runtime::Queue& queue = device::current_queue(device_index);
  return {reinterpret_cast<intptr_t>(queue.device().context()),
          reinterpret_cast<intptr_t>(queue.share())};
}

// (cl_mem, byte offset) of a tensor, for a library that may write to it.
std::pair<intptr_t, size_t> memory_handle(const at::Tensor& tensor) {
  const runtime::BufferView view = aten::arg(tensor);
  if (view.memory != nullptr) {
    // Of which a storage of DLPack may have a part.
    auto& blocks = runtime::allocator(view.device_index);
    if (void* begin = blocks.allocation_around(tensor.storage().data())) {
      runtime::never_keep_packed(begin, blocks.requested_size(begin));
    }
  }
  return {reinterpret_cast<intptr_t>(view.memory),
          view.offset * tensor.element_size()};
}

// Runs in destructors.
void release_adopted(void* address, PyObject* owner) noexcept {
  try {
    runtime::release_external(address);
  } catch (const std::exception& error) {
    TORCH_WARN("opencl: releasing memory of pyopencl failed: ", error.what());
  }
  if (Py_IsInitialized() != 0) {
    const py::gil_scoped_acquire gil;
    Py_DECREF(owner);
  }
}

// A tensor in memory that `owner` keeps alive. Strides count elements.
at::Tensor adopt_memory(int device_index,
                        intptr_t memory,
                        size_t bytes,
                        size_t byte_offset,
                        const std::vector<int64_t>& sizes,
                        const std::vector<int64_t>& strides,
                        at::ScalarType dtype,
                        py::object owner) {
  void* address = runtime::adopt_external(
      device_index, reinterpret_cast<cl_mem>(memory), bytes);
  // Whatever fails before the tensor has it releases it as well.
  const std::shared_ptr<void> adopted(
      address, [held = owner.release().ptr()](void* external) {
        release_adopted(external, held);
      });
  const c10::Device device(at::kPrivateUse1,
                           static_cast<c10::DeviceIndex>(device_index));
  return at::for_blob(static_cast<char*>(address) + byte_offset, sizes)
      .strides(strides)
      .deleter([adopted](void*) {})
      .options(at::TensorOptions(device).dtype(dtype))
      .target_device(device)
      .make_tensor();
}

}  // namespace

void bind_user_kernels(py::module_& m) {
  bind_raw_kernels(m);
  bind_elementwise_kernels(m);
  m.def("_types_source", [] { return sources::types.text; });
  m.def("_queue_handles", wrap_pybind_function(&queue_handles));
  m.def("_memory_handle", wrap_pybind_function(&memory_handle));
  m.def("_adopt_memory", wrap_pybind_function(&adopt_memory));
}

}  // namespace torch_opencl
