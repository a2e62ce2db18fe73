#include "compiled_kernels.h"

#include "../aten/launch.h"
#include "../aten/reports.h"
#include "../device/stream.h"
#include "../runtime/kernel.h"
#include "compiled_sources.h"
#include "kernel_sources.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <bit>
#include <deque>
#include <optional>

namespace py = pybind11;

namespace torch_opencl {

namespace {

using torch::wrap_pybind_function;

// Lives as long as the module of Python that Inductor wrote. `kinds` has a
// letter for each argument: w and r are tensors that the kernel writes or only
// reads, i an int, l a long, f a float, d a double.
class CompiledKernel {
 public:
  CompiledKernel(std::string name,
                 std::string source,
                 std::string options,
                 std::string kinds,
                 size_t local_size,
                 bool reports)
      : name_(std::move(name)),
        source_(std::move(source)),
        options_(std::move(options)),
        kinds_(std::move(kinds)),
        local_size_(local_size),
        reports_(reports),
        kernels_(runtime::device_count()) {}

  runtime::Kernel& kernel(int device_index) {
    std::atomic<runtime::Kernel*>& place = kernels_.at(device_index);
    runtime::Kernel* found = place.load(std::memory_order_acquire);
    if (found == nullptr) {
      found = &runtime::device(device_index)
                   .programs()
                   .get_generated(name_ + ".cl", source_, name_, options_);
      place.store(found, std::memory_order_release);
    }
    return *found;
  }

  // The arguments, then the number of work-groups.
  void call(const py::args& arguments) {
    const size_t count = kinds_.size();
    PyObject* tuple = arguments.ptr();
    TORCH_CHECK_TYPE(PyTuple_GET_SIZE(tuple) == Py_ssize_t(count + 1),
                     name_,
                     ": expected ",
                     count + 1,
                     " arguments, got ",
                     PyTuple_GET_SIZE(tuple));
    const int64_t groups = number(PyTuple_GET_ITEM(tuple, count));
    if (groups <= 0) {
      return;
    }
    c10::SmallVector<const at::Tensor*, 16> tensors;
    c10::SmallVector<int64_t, 8> numbers;
    const at::Tensor* on = nullptr;
    for (size_t i = 0; i < count; ++i) {
      PyObject* item = PyTuple_GET_ITEM(tuple, i);
      if (kinds_[i] == 'i' || kinds_[i] == 'l') {
        numbers.push_back(number(item));
        continue;
      }
      if (kinds_[i] == 'f' || kinds_[i] == 'd') {
        numbers.push_back(std::bit_cast<int64_t>(real(item)));
        continue;
      }
      TORCH_CHECK_TYPE(THPVariable_Check(item),
                       name_,
                       ": argument ",
                       i,
                       " must be a tensor");
      tensors.push_back(&THPVariable_Unpack(item));
      if (on == nullptr && tensors.back()->is_privateuseone()) {
        on = tensors.back();
      }
    }
    TORCH_CHECK(on != nullptr, name_, ": no tensor is on an opencl device");
    // A launch may wait for a kernel's lock, or for room in the queue.
    const py::gil_scoped_release no_gil;
    launch(*on, tensors, numbers, static_cast<size_t>(groups));
  }

 private:
  static int64_t number(PyObject* item) {
    const int64_t value = PyLong_AsLongLong(item);
    if (value == -1 && PyErr_Occurred() != nullptr) {
      throw python_error();
    }
    return value;
  }

  static double real(PyObject* item) {
    const double value = PyFloat_AsDouble(item);
    if (value == -1 && PyErr_Occurred() != nullptr) {
      throw python_error();
    }
    return value;
  }

  // Reals among the numbers are the bits of doubles.
  void launch(const at::Tensor& on,
              c10::ArrayRef<const at::Tensor*> tensors,
              c10::ArrayRef<int64_t> numbers,
              size_t groups) {
    runtime::Queue& queue = aten::queue_of(on);
    runtime::Kernel& found = kernel(on.device().index());
    // Numbers that the host holds as tensors.
    std::deque<at::Tensor> copies;
    c10::SmallVector<runtime::BufferView, 16> views;
    size_t next_tensor = 0;
    for (const char kind : kinds_) {
      if (kind != 'w' && kind != 'r') {
        continue;
      }
      const at::Tensor* tensor = tensors[next_tensor++];
      if (kind == 'r' && tensor->is_cpu() && tensor->numel() == 1) {
        tensor = &copies.emplace_back(tensor->to(on.device()));
      }
      views.push_back(kind == 'w' ? aten::arg(*tensor) : aten::arg_in(*tensor));
      aten::check_same_device(queue, views.back());
    }
    std::optional<runtime::ReportArgument> report;
    if (reports_) {
      report.emplace(queue, "torch.compile");
    }
    {
      const auto lock = queue.lock(found);
      cl_uint index = 0;
      size_t next_view = 0;
      size_t next_number = 0;
      for (const char kind : kinds_) {
        if (kind == 'i') {
          runtime::bind_argument(found.handle,
                                 index,
                                 static_cast<int32_t>(numbers[next_number++]));
        } else if (kind == 'l') {
          runtime::bind_argument(found.handle, index, numbers[next_number++]);
        } else if (kind == 'f' || kind == 'd') {
          const auto value = std::bit_cast<double>(numbers[next_number++]);
          if (kind == 'd') {
            runtime::bind_argument(found.handle, index, value);
          } else {
            runtime::bind_argument(
                found.handle, index, static_cast<float>(value));
          }
        } else {
          const runtime::BufferView& view = views[next_view++];
          runtime::check_access(found, index, view);
          runtime::bind_argument(found.handle, index, view);
        }
      }
      if (report) {
        bind_argument(found.handle, index, *report);
      }
      queue.launch(found,
                   {1, {groups * local_size_, 1, 1}, {local_size_, 1, 1}});
    }
    for (const runtime::BufferView& view : views) {
      runtime::tell_written(queue, view);
    }
  }

  std::string name_;
  std::string source_;
  std::string options_;
  std::string kinds_;
  size_t local_size_;
  bool reports_;
  std::deque<std::atomic<runtime::Kernel*>> kernels_;
};

// Texts that generated kernels are made of.
const char* kernel_text(const std::string& name) {
  if (name == "types") {
    return sources::types.text;
  }
  if (name == "lanes") {
    return sources::lanes.text;
  }
  if (name == "math") {
    return sources::math.text;
  }
  if (name == "nan_constants") {
    return sources::nan_constants.text;
  }
  if (name == "compiled") {
    return sources::compiled.text;
  }
  if (name == "attention_cpu") {
    return sources::compiled_attention_cpu.text;
  }
  if (name == "attention_gpu") {
    return sources::compiled_attention_gpu.text;
  }
  TORCH_CHECK_VALUE(name == "philox", "no kernel text of name ", name);
  return sources::philox.text;
}

}  // namespace

void bind_compiled_kernels(py::module_& m) {
  py::class_<CompiledKernel, std::shared_ptr<CompiledKernel>>(m,
                                                              "_CompiledKernel")
      .def(py::init<std::string,
                    std::string,
                    std::string,
                    std::string,
                    size_t,
                    bool>())
      .def("__call__", wrap_pybind_function(&CompiledKernel::call));
  m.def("_kernel_text", wrap_pybind_function(&kernel_text));
}

}  // namespace torch_opencl
