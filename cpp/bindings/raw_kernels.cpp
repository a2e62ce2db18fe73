// Python's RawKernel checks arguments and names the one that is wrong. Calls of
// plain tensors and numbers, which are most, are checked here alone.
#include "raw_kernels.h"

#include "../aten/launch.h"
#include "../device/stream.h"
#include "../runtime/command_graph.h"
#include "../runtime/host_wait.h"
#include "../runtime/kernel_arguments.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <limits>
#include <variant>

namespace py = pybind11;

namespace torch_opencl {

namespace {

using runtime::KernelArgument;
using torch::wrap_pybind_function;
using torch::wrap_pybind_function_no_gil;

// What a parameter takes. TENSOR(float, x) is one.
struct Parameter {
  enum class Kind : uint8_t { kPointer, kTensor, kLocal, kValue };
  Kind kind;
  char format;  // of a value's numbers, as in Python's struct
  size_t width;
  std::vector<at::ScalarType> dtypes;  // of a tensor; any where empty
};

// A kernel lives as long as the process.
struct RawKernel {
  int device_index;
  runtime::Kernel* kernel;
  std::vector<std::tuple<std::string, std::string, std::string>> arguments;
  std::vector<Parameter> parameters = {};
};

RawKernel raw_kernel(int device_index,
                     const std::string& program,
                     const std::string& source,
                     const std::string& kernel_name,
                     const std::string& options) {
  std::vector<KernelArgument> arguments;
  RawKernel result{
      device_index,
      &runtime::kernel_with_arguments(runtime::device(device_index),
                                      program,
                                      source,
                                      kernel_name,
                                      options,
                                      &arguments),
      {}};
  for (const auto& argument : arguments) {
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
  SubBuffers() = default;
  SubBuffers(SubBuffers&&) = default;
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

void launch(const RawKernel& raw,
            const std::array<size_t, 3>& global,
            const std::array<size_t, 3>& local,
            c10::ArrayRef<RawValue> values) {
  // A launch may wait for a kernel's lock, or for room in the queue.
  const py::gil_scoped_release no_gil;
  runtime::Queue& queue = device::current_queue(raw.device_index);
  const uint32_t alignment = queue.device().info().address_alignment;
  SubBuffers sub_buffers;
  c10::SmallVector<const void*, 8> written;
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
  if (runtime::CommandGraph* graph = queue.capturing()) {
    graph->keep(std::make_shared<SubBuffers>(std::move(sub_buffers)));
  }
  for (const void* address : written) {
    queue.wrote(address);
  }
  // It may run for as long as its arguments say.
  runtime::enqueued_work(queue).add(raw.kernel->name,
                                    runtime::EnqueuedWork::kUnknownSize);
}

void launch_raw(const RawKernel& raw,
                const std::array<size_t, 3>& global,
                const std::array<size_t, 3>& local,
                const py::list& list) {
  launch(raw, global, local, raw_values(list));
}

// The items of a list or tuple; none of anything else.
struct Items {
  explicit Items(PyObject* from) {
    if (PyTuple_CheckExact(from) || PyList_CheckExact(from)) {
      size = PySequence_Fast_GET_SIZE(from);
      items = PySequence_Fast_ITEMS(from);
    }
  }
  Py_ssize_t size = -1;
  PyObject** items = nullptr;
};

template <class T>
bool append_integer(PyObject* item, std::string& bytes) {
  if (!PyLong_Check(item)) {
    return false;
  }
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(item, &overflow);
  const auto narrow = static_cast<T>(value);
  if (overflow != 0 || static_cast<int64_t>(narrow) != value ||
      (value < 0) != (narrow < T(0))) {
    return false;
  }
  bytes.append(reinterpret_cast<const char*>(&narrow), sizeof(narrow));
  return true;
}

template <class T>
bool append_floating(PyObject* item, std::string& bytes) {
  double value = 0;
  if (PyFloat_Check(item)) {
    value = PyFloat_AS_DOUBLE(item);
  } else {
    int overflow = 0;
    if (!PyLong_Check(item)) {
      return false;
    }
    value = double(PyLong_AsLongLongAndOverflow(item, &overflow));
    if (overflow != 0) {
      return false;
    }
  }
  if (std::isfinite(value) &&
      std::abs(value) > double(std::numeric_limits<T>::max())) {
    return false;
  }
  const T narrow = static_cast<T>(value);
  bytes.append(reinterpret_cast<const char*>(&narrow), sizeof(narrow));
  return true;
}

bool append_number(char format, PyObject* item, std::string& bytes) {
  switch (format) {
    case 'b':
      return append_integer<int8_t>(item, bytes);
    case 'B':
      return append_integer<uint8_t>(item, bytes);
    case 'h':
      return append_integer<int16_t>(item, bytes);
    case 'H':
      return append_integer<uint16_t>(item, bytes);
    case 'i':
      return append_integer<int32_t>(item, bytes);
    case 'I':
      return append_integer<uint32_t>(item, bytes);
    case 'q':
      return append_integer<int64_t>(item, bytes);
    case 'Q':
      return append_integer<uint64_t>(item, bytes);
    case 'f':
      return append_floating<float>(item, bytes);
    case 'd':
      return append_floating<double>(item, bytes);
    default:
      return false;
  }
}

using Values = c10::SmallVector<RawValue, 8>;

bool append_tensor(const RawKernel& raw,
                   const Parameter& parameter,
                   PyObject* item,
                   Values& values) {
  if (!THPVariable_CheckExact(item)) {
    return false;
  }
  const at::Tensor& tensor = THPVariable_Unpack(item);
  const auto& dtypes = parameter.dtypes;
  if (!tensor.is_privateuseone() ||
      tensor.device().index() != raw.device_index ||
      tensor.layout() != at::kStrided || tensor.is_neg() || tensor.is_conj() ||
      (!dtypes.empty() &&
       std::find(dtypes.begin(), dtypes.end(), tensor.scalar_type()) ==
           dtypes.end())) {
    return false;
  }
  if (parameter.kind == Parameter::Kind::kTensor) {
    values.emplace_back(BufferAndOffset{tensor});
  } else {
    values.emplace_back(PointerTo{tensor});
  }
  return true;
}

// Whether `item` is one that Python would take as well.
bool append_value(const RawKernel& raw,
                  const Parameter& parameter,
                  PyObject* item,
                  Values& values) {
  using Kind = Parameter::Kind;
  if (parameter.kind == Kind::kPointer || parameter.kind == Kind::kTensor) {
    return append_tensor(raw, parameter, item, values);
  }
  if (parameter.kind == Kind::kLocal) {
    const int64_t bytes = PyLong_CheckExact(item) ? PyLong_AsLongLong(item) : 0;
    const auto limit = runtime::device(raw.device_index).info().local_memory;
    if (bytes <= 0 || static_cast<uint64_t>(bytes) > limit) {
      PyErr_Clear();
      return false;
    }
    values.emplace_back(LocalBytes{static_cast<size_t>(bytes)});
    return true;
  }
  std::string bytes;
  if (parameter.width == 1) {
    if (!append_number(parameter.format, item, bytes)) {
      return false;
    }
  } else {
    const Items items(item);
    if (items.size != static_cast<Py_ssize_t>(parameter.width)) {
      return false;
    }
    for (Py_ssize_t i = 0; i < items.size; ++i) {
      if (!append_number(parameter.format, items.items[i], bytes)) {
        return false;
      }
    }
    if (parameter.width == 3) {  // as large as a vector of four
      bytes.append(bytes.size() / 3, '\0');
    }
  }
  values.emplace_back(std::move(bytes));
  return true;
}

bool sizes_of(const RawKernel& raw,
              PyObject* grid,
              PyObject* block,
              std::array<size_t, 3>& global,
              std::array<size_t, 3>& local) {
  const Items groups(grid);
  const Items items(block);
  if (groups.size != items.size || groups.size < 1 || groups.size > 3) {
    return false;
  }
  double work_items = 1;
  size_t of_group = 1;
  const size_t limit =
      runtime::device(raw.device_index).info().max_work_group_size;
  for (Py_ssize_t i = 0; i < groups.size; ++i) {
    if (!PyLong_CheckExact(groups.items[i]) ||
        !PyLong_CheckExact(items.items[i])) {
      return false;
    }
    const int64_t count = PyLong_AsLongLong(groups.items[i]);
    const int64_t size = PyLong_AsLongLong(items.items[i]);
    if (count < 0 || size < 1 || count > std::numeric_limits<int32_t>::max() ||
        static_cast<size_t>(size) > limit) {
      PyErr_Clear();
      return false;
    }
    local[i] = size;
    global[i] = static_cast<size_t>(count) * local[i];
    of_group *= local[i];
    work_items *= double(global[i]);
  }
  return of_group <= limit && work_items < 0x1p62;
}

// Launches a call of plain arguments; false, and nothing done, of any other.
bool launch_plain(const RawKernel& raw,
                  const py::object& grid,
                  const py::object& block,
                  const py::object& arguments) {
  const Items items(arguments.ptr());
  if (items.size != static_cast<Py_ssize_t>(raw.parameters.size())) {
    return false;
  }
  std::array<size_t, 3> global{1, 1, 1};
  std::array<size_t, 3> local{1, 1, 1};
  if (!sizes_of(raw, grid.ptr(), block.ptr(), global, local)) {
    return false;
  }
  Values values;
  bool has_tensor = false;  // else the current device says where
  for (Py_ssize_t i = 0; i < items.size; ++i) {
    const Parameter& parameter = raw.parameters[i];
    if (!append_value(raw, parameter, items.items[i], values)) {
      return false;
    }
    has_tensor |= parameter.kind <= Parameter::Kind::kTensor;
  }
  if (!has_tensor) {
    return false;
  }
  launch(raw, global, local, values);
  return true;
}

// A letter for the kind, the format and width of a value, dtypes of a tensor.
using Described =
    std::tuple<std::string, std::string, size_t, std::vector<at::ScalarType>>;

void describe(RawKernel& raw, const std::vector<Described>& parameters) {
  raw.parameters.clear();
  for (const auto& [kind, format, width, dtypes] : parameters) {
    const size_t number = std::string("ptlv").find(kind);
    raw.parameters.push_back({static_cast<Parameter::Kind>(number),
                              format.empty() ? '\0' : format[0],
                              width,
                              dtypes});
  }
}

}  // namespace

void bind_raw_kernels(py::module_& m) {
  py::class_<RawKernel>(m, "_RawKernel")
      .def_readonly("arguments", &RawKernel::arguments)
      .def("describe", wrap_pybind_function(&describe))
      .def("launch", wrap_pybind_function(&launch_plain));
  m.def("_raw_kernel", wrap_pybind_function_no_gil(&raw_kernel));
  m.def("_launch_raw", wrap_pybind_function(&launch_raw));
}

}  // namespace torch_opencl
