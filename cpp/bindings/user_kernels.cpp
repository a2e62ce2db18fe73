#include "user_kernels.h"

#include "../aten/launch.h"
#include "../device/stream.h"
#include "../runtime/caching_allocator.h"
#include "../runtime/host_wait.h"
#include "../runtime/kernel_arguments.h"
#include "../runtime/packed_weight_cache.h"
#include "kernel_sources.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <variant>

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

struct PointerTo {
  at::Tensor tensor;
};
struct BufferAndOffset {
  at::Tensor tensor;
};
struct LocalBytes {
  size_t size;
};
using RawValue =
    std::variant<PointerTo, BufferAndOffset, std::string, LocalBytes>;

// Of tensors, tuples of one tensor, bytes (values) and numbers (sizes of local
// memory).
std::vector<RawValue> raw_values(const py::list& values) {
  std::vector<RawValue> result;
  for (const py::handle value : values) {
    if (py::isinstance<py::bytes>(value)) {
      result.emplace_back(value.cast<std::string>());
    } else if (py::isinstance<py::tuple>(value)) {
      result.emplace_back(
          BufferAndOffset{value.cast<py::tuple>()[0].cast<at::Tensor>()});
    } else if (THPVariable_Check(value.ptr())) {
      result.emplace_back(PointerTo{THPVariable_Unpack(value.ptr())});
    } else {
      result.emplace_back(LocalBytes{value.cast<size_t>()});
    }
  }
  return result;
}

void launch_raw(int device_index,
                const RawKernel& raw,
                const std::array<size_t, 3>& global,
                const std::array<size_t, 3>& local,
                const py::list& list) {
  const std::vector<RawValue> values = raw_values(list);
  // A launch may wait for a kernel's lock, or for room in the queue.
  const py::gil_scoped_release no_gil;
  runtime::Queue& queue = device::current_queue(device_index);
  const uint32_t alignment = queue.device().info().address_alignment;
  SubBuffers sub_buffers;
  std::vector<const void*> written;
  const auto lock = queue.lock(*raw.kernel);
  cl_uint index = 0;
  for (const RawValue& value : values) {
    if (const auto* bytes = std::get_if<std::string>(&value)) {
      runtime::bind_bytes(
          raw.kernel->handle, index, bytes->data(), bytes->size());
    } else if (const auto* local_bytes = std::get_if<LocalBytes>(&value)) {
      runtime::bind_bytes(
          raw.kernel->handle, index, nullptr, local_bytes->size);
    } else if (const auto* pair = std::get_if<BufferAndOffset>(&value)) {
      const runtime::BufferView view = aten::arg(pair->tensor);
      aten::check_same_device(queue, view);
      runtime::bind_argument(raw.kernel->handle, index, view);
      written.push_back(view.written);
    } else {
      const at::Tensor& tensor = std::get<PointerTo>(value).tensor;
      runtime::BufferView view = aten::arg(tensor);
      aten::check_same_device(queue, view);
      if (view.offset != 0) {
        const size_t offset = view.offset * tensor.element_size();
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
      written.push_back(view.written);
    }
  }
  runtime::NDRange range{3, global, local};
  queue.launch(*raw.kernel, range);
  for (const void* address : written) {
    runtime::invalidate_packed(address);
  }
  // It may run for as long as its arguments say.
  runtime::enqueued_work(queue).add(raw.kernel->name,
                                    runtime::EnqueuedWork::kUnknownSize);
}

// (cl_context, cl_command_queue) of the current stream.
std::pair<intptr_t, intptr_t> queue_handles(int device_index) {
  runtime::Queue& queue = device::current_queue(device_index);
  return {reinterpret_cast<intptr_t>(queue.device().context()),
          reinterpret_cast<intptr_t>(queue.share())};
}

// (cl_mem, byte offset) of a tensor, for a library that may write to it.
std::pair<intptr_t, size_t> memory_handle(const at::Tensor& tensor) {
  runtime::never_keep_packed(tensor.storage().data(),
                             tensor.storage().nbytes());
  const runtime::BufferView view = aten::arg(tensor);
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
  PyObject* held = owner.release().ptr();
  const c10::Device device(at::kPrivateUse1,
                           static_cast<c10::DeviceIndex>(device_index));
  return at::for_blob(static_cast<char*>(address) + byte_offset, sizes)
      .strides(strides)
      .deleter([address, held](void*) { release_adopted(address, held); })
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
