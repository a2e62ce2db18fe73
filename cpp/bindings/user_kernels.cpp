#include "user_kernels.h"

#include "../aten/launch.h"
#include "../device/stream.h"
#include "../runtime/caching_allocator.h"
#include "../runtime/forms.h"
#include "../runtime/kernel_arguments.h"
#include "kernel_sources.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace torch_opencl {

namespace {

using runtime::KernelArgument;
using torch::wrap_pybind_function;
using torch::wrap_pybind_function_no_gil;

// A kernel lives as long as the process.
struct RawKernel {
  runtime::Kernel* kernel;
  std::vector<std::tuple<std::string, std::string, std::string>> arguments;
};

RawKernel raw_kernel(int device_index,
                     const std::string& program,
                     const std::string& source,
                     const std::string& kernel_name,
                     const std::string& options) {
  RawKernel result;
  result.kernel =
      &runtime::device(device_index)
           .programs()
           .get_generated(program,
                          source,
                          kernel_name,
                          runtime::kArgumentOption + (" " + options));
  for (const auto& argument : runtime::kernel_arguments(*result.kernel)) {
    const char* kind = argument.kind == KernelArgument::Kind::kBuffer ? "buffer"
                       : argument.kind == KernelArgument::Kind::kLocal
                           ? "local"
                           : "value";
    result.arguments.emplace_back(kind, argument.type, argument.name);
  }
  return result;
}

// Sub-buffers made for one launch.
class SubBuffers {
 public:
  ~SubBuffers() {
    for (const cl_mem memory : created_) {
      runtime::release_memory(memory);
    }
  }
  cl_mem at(cl_mem memory, size_t offset) {
    return created_.emplace_back(runtime::create_sub_buffer(memory, offset));
  }

 private:
  std::vector<cl_mem> created_;
};

runtime::Location location_of(const at::Tensor& tensor) {
  return runtime::locate(tensor.const_data_ptr());
}

// Values are tensors (pointers), tuples of one tensor (a buffer and an offset),
// bytes (values) and numbers (sizes of local memory).
void launch_raw(int device_index,
                const RawKernel& raw,
                const std::array<size_t, 3>& global,
                const std::array<size_t, 3>& local,
                const py::list& values) {
  runtime::Queue& queue = device::current_queue(device_index);
  const uint32_t alignment = queue.device().info().address_alignment;
  SubBuffers sub_buffers;
  const auto lock = queue.lock(*raw.kernel);
  cl_uint index = 0;
  for (const py::handle value : values) {
    if (py::isinstance<py::bytes>(value)) {
      const std::string bytes = value.cast<std::string>();
      runtime::bind_bytes(
          raw.kernel->handle, index, bytes.data(), bytes.size());
    } else if (py::isinstance<py::tuple>(value)) {
      const auto tensor = value.cast<py::tuple>()[0].cast<at::Tensor>();
      const runtime::BufferView view = aten::arg(tensor);
      aten::check_same_device(queue, view);
      runtime::bind_argument(raw.kernel->handle, index, view);
    } else if (THPVariable_Check(value.ptr())) {
      const at::Tensor& tensor = THPVariable_Unpack(value.ptr());
      runtime::BufferView view = aten::arg(tensor);
      aten::check_same_device(queue, view);
      if (view.offset != 0) {
        const size_t offset = location_of(tensor).byte_offset;
        TORCH_CHECK(
            offset % alignment == 0,
            raw.kernel->name,
            ": argument ",
            index,
            " is a view whose memory begins ",
            offset % alignment,
            " bytes behind a multiple of ",
            alignment,
            ", where a pointer of this device cannot begin. Pass .clone(), or "
            "declare the kernel's parameters with TENSOR()");
        view.memory = sub_buffers.at(view.memory, offset);
      }
      runtime::bind_bytes(
          raw.kernel->handle, index, &view.memory, sizeof(view.memory));
    } else {
      runtime::bind_bytes(
          raw.kernel->handle, index, nullptr, value.cast<size_t>());
    }
  }
  runtime::NDRange range{3, global, local};
  queue.launch(*raw.kernel, range);
}

// (cl_context, cl_command_queue) of the current stream.
std::pair<intptr_t, intptr_t> queue_handles(int device_index) {
  runtime::Queue& queue = device::current_queue(device_index);
  return {reinterpret_cast<intptr_t>(queue.device().context()),
          reinterpret_cast<intptr_t>(queue.share())};
}

// (cl_mem, byte offset) of a tensor, for a library that may write to it.
std::pair<intptr_t, size_t> memory_handle(const at::Tensor& tensor) {
  runtime::never_keep_forms(tensor.storage().data(), tensor.storage().nbytes());
  const runtime::Location location = location_of(tensor);
  return {reinterpret_cast<intptr_t>(location.memory), location.byte_offset};
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
  PyObject* held = owner.release().ptr();
  const c10::Device device(at::kPrivateUse1,
                           static_cast<c10::DeviceIndex>(device_index));
  return at::for_blob(static_cast<char*>(address) + byte_offset, sizes)
      .strides(strides)
      .deleter([address, held](void*) {
        runtime::release_external(address);
        const py::gil_scoped_acquire gil;
        Py_DECREF(held);
      })
      .options(at::TensorOptions(device).dtype(dtype))
      .target_device(device)
      .make_tensor();
}

}  // namespace

void bind_user_kernels(py::module_& m) {
  py::class_<RawKernel>(m, "_RawKernel")
      .def_readonly("arguments", &RawKernel::arguments);
  m.def("_types_source", [] { return sources::types.text; });
  m.def("_raw_kernel", wrap_pybind_function_no_gil(&raw_kernel));
  m.def("_launch_raw", wrap_pybind_function(&launch_raw));
  m.def("_queue_handles", wrap_pybind_function(&queue_handles));
  m.def("_memory_handle", wrap_pybind_function(&memory_handle));
  m.def("_adopt_memory", wrap_pybind_function(&adopt_memory));
}

}  // namespace torch_opencl
