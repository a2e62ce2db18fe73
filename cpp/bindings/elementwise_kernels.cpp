// Python's ElementwiseKernel checks arguments and names the one that is wrong.
// Calls that are like an earlier one in numbers, dtypes and device are made
// here.
#include "elementwise_kernels.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>

namespace py = pybind11;

namespace torch_opencl {

namespace {

using at::ScalarType;
using at::Tensor;
using torch::wrap_pybind_function;
using Dtypes = c10::SmallVector<ScalarType, 8>;

// A declared dtype, or the number of a placeholder.
struct Declared {
  std::optional<ScalarType> dtype;
  size_t placeholder = 0;
};

void run(int64_t kernel, at::TensorList outputs, at::TensorList inputs) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("torch_opencl::_elementwise", "")
          .typed<void(int64_t, at::TensorList, at::TensorList)>();
  op.call(kernel, outputs, inputs);
}

Tensor run_new(int64_t kernel,
               at::TensorList inputs,
               ScalarType dtype,
               c10::Device device) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("torch_opencl::_elementwise_new", "")
          .typed<Tensor(int64_t, at::TensorList, ScalarType, c10::Device)>();
  return op.call(kernel, inputs, dtype, device);
}

class ElementwiseCalls {
 public:
  // Each parameter is a dtype or the name of a placeholder.
  ElementwiseCalls(const std::vector<py::object>& inputs,
                   const std::vector<py::object>& outputs)
      : inputs_(inputs.size()) {
    std::vector<std::string> names;
    for (const auto* list : {&inputs, &outputs}) {
      for (const py::object& each : *list) {
        Declared declared;
        if (py::isinstance<py::str>(each)) {
          const auto name = each.cast<std::string>();
          const auto found = std::find(names.begin(), names.end(), name);
          declared.placeholder = found - names.begin();
          if (found == names.end()) {
            names.push_back(name);
          }
        } else {
          declared.dtype = each.cast<ScalarType>();
        }
        declared_.push_back(declared);
      }
    }
    placeholders_ = names.size();
  }

  void add(const std::vector<ScalarType>& dtypes, int64_t kernel) {
    known_.emplace_back(dtypes, kernel);
  }

  // The output or outputs; None, and nothing done, where Python has to look.
  py::object call(const py::tuple& arguments) {
    const size_t count = arguments.size();
    const bool gives_outputs = count == declared_.size();
    if (!gives_outputs && (count != inputs_ || declared_.size() != count + 1)) {
      return py::none();
    }
    Dtypes of_placeholders(placeholders_, ScalarType::Undefined);
    c10::SmallVector<Tensor, 8> tensors;
    std::optional<c10::Device> device;
    bool has_numbers = false;
    for (size_t i = 0; i < count; ++i) {
      PyObject* item = PyTuple_GET_ITEM(arguments.ptr(), i);
      tensors.emplace_back();
      if (!THPVariable_CheckExact(item)) {
        has_numbers = true;
        continue;
      }
      const Tensor& tensor = THPVariable_Unpack(item);
      if (tensor.layout() != at::kStrided || !tensor.is_privateuseone() ||
          (device.has_value() && tensor.device() != *device)) {
        return py::none();
      }
      device = tensor.device();
      const Declared& declared = declared_[i];
      ScalarType expected = tensor.scalar_type();
      if (declared.dtype.has_value()) {
        expected = *declared.dtype;
      } else if (ScalarType& known = of_placeholders[declared.placeholder];
                 known == ScalarType::Undefined) {
        known = expected;
      } else {
        expected = known;
      }
      if (tensor.scalar_type() != expected) {
        return py::none();
      }
      tensors.back() = tensor;
    }
    if (!device.has_value()) {
      return py::none();
    }
    Dtypes dtypes;
    for (const Declared& declared : declared_) {
      dtypes.push_back(declared.dtype.has_value()
                           ? *declared.dtype
                           : of_placeholders[declared.placeholder]);
    }
    const auto found =
        std::find_if(known_.begin(), known_.end(), [&](const auto& each) {
          return at::ArrayRef<ScalarType>(each.first) == dtypes;
        });
    if (found == known_.end() ||
        (has_numbers && !numbers(arguments, dtypes, tensors))) {
      return py::none();
    }
    const int64_t kernel = found->second;
    const auto inputs = at::TensorList(tensors).slice(0, inputs_);
    if (!gives_outputs) {
      Tensor output;
      {
        const py::gil_scoped_release no_gil;
        output = run_new(kernel, inputs, dtypes.back(), *device);
      }
      return py::cast(output);
    }
    {
      const py::gil_scoped_release no_gil;
      run(kernel, at::TensorList(tensors).slice(inputs_), inputs);
    }
    if (declared_.size() == inputs_ + 1) {
      return py::reinterpret_borrow<py::object>(arguments[inputs_]);
    }
    return arguments[py::slice(py::ssize_t(inputs_), py::ssize_t(count), 1)];
  }

 private:
  // Floating inputs that are given as numbers, as tensors.
  bool numbers(const py::tuple& arguments,
               const Dtypes& dtypes,
               c10::SmallVector<Tensor, 8>& tensors) const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].defined()) {
        continue;
      }
      PyObject* item = PyTuple_GET_ITEM(arguments.ptr(), i);
      if (i >= inputs_ || !PyFloat_CheckExact(item) ||
          (dtypes[i] != ScalarType::Float && dtypes[i] != ScalarType::Double)) {
        return false;
      }
      tensors[i] = at::scalar_tensor(PyFloat_AS_DOUBLE(item),
                                     at::TensorOptions().dtype(dtypes[i]));
    }
    return true;
  }

  size_t inputs_;
  size_t placeholders_ = 0;
  std::vector<Declared> declared_;
  std::vector<std::pair<std::vector<ScalarType>, int64_t>> known_;
};

}  // namespace

void bind_elementwise_kernels(py::module_& m) {
  py::class_<ElementwiseCalls>(m, "_ElementwiseCalls")
      .def(py::init<const std::vector<py::object>&,
                    const std::vector<py::object>&>())
      .def("add", wrap_pybind_function(&ElementwiseCalls::add))
      .def("__call__", wrap_pybind_function(&ElementwiseCalls::call));
}

}  // namespace torch_opencl
