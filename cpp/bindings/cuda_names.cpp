// "cuda" names an opencl device, once a program asked for it.
//
// torch makes a device of a string in one place, a constructor in libc10, which
// the other libraries call through their tables of imported functions. An entry
// of these tables is replaced, so that ops, torch.device, TorchScript, every
// thread and forked processes see opencl devices, and nothing is paid by a call
// without a string.
#include "cuda_names.h"

#include "loaded_libraries.h"

#include <ATen/autocast_mode.h>
#include <c10/core/Device.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace py = pybind11;

namespace torch_opencl {

namespace {

// c10::Device::Device(const std::string&), as compilers of Linux name it.
constexpr const char* kDeviceOfString =
    "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_"
    "traitsIcESaIcEEE";

class Counts {
 public:
  void add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    ++counts_[name];
  }
  std::map<std::string, int64_t> all() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int64_t> counts_;
};

Counts& counts() {
  static auto* instance = new Counts();
  return *instance;
}

void device_of_string(c10::Device* self, const std::string& text) {
  new (self) c10::Device(text);  // this library's own import is not replaced
  if (self->is_cuda()) {
    counts().add("device \"" + text + "\"");
    *self = c10::Device(c10::kPrivateUse1, self->index());
  }
}

// Autocast's state without a device is CUDA's: torch.is_autocast_enabled() and
// its siblings. Only Python's functions ask here, for TorchScript's casts are
// of CUDA tensors.
constexpr const char* kPythonLibrary = "libtorch_python.so";

c10::DeviceType opencl_for_cuda(c10::DeviceType type) {
  return type == c10::kCUDA ? c10::kPrivateUse1 : type;
}

bool is_autocast_enabled(c10::DeviceType type) {
  return at::autocast::is_autocast_enabled(opencl_for_cuda(type));
}

void set_autocast_enabled(c10::DeviceType type, bool enabled) {
  at::autocast::set_autocast_enabled(opencl_for_cuda(type), enabled);
}

at::ScalarType get_autocast_dtype(c10::DeviceType type) {
  return at::autocast::get_autocast_dtype(opencl_for_cuda(type));
}

void set_autocast_dtype(c10::DeviceType type, at::ScalarType dtype) {
  at::autocast::set_autocast_dtype(opencl_for_cuda(type), dtype);
}

bool redirect_autocast() {
  const auto replace = [](const char* symbol, auto* function) {
    return replace_imported_function(
               symbol, reinterpret_cast<void*>(function), kPythonLibrary) > 0;
  };
  return replace("_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE",
                 &is_autocast_enabled) &&
         replace("_ZN2at8autocast20set_autocast_enabledEN3c1010DeviceTypeEb",
                 &set_autocast_enabled) &&
         replace("_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE",
                 &get_autocast_dtype) &&
         replace(
             "_ZN2at8autocast18set_autocast_dtypeEN3c1010DeviceTypeENS1_"
             "10ScalarTypeE",
             &set_autocast_dtype);
}

// Those of torch's modules that compare a device's type with "cuda", or with
// what a program calls it.
constexpr std::array<std::string_view, 3> kModulesThatCompare = {
    "torch._library.custom_ops",
    "torch.amp.autocast_mode",
    "torch.distributed.checkpoint.filesystem",
};

// Whether torch's own Python code asks: it looks a device's module up by its
// type. Dynamo asks for the program it traces.
bool asked_by_torch() {
  PyObject* globals = PyEval_GetGlobals();  // borrowed
  PyObject* name =
      globals == nullptr ? nullptr : PyDict_GetItemString(globals, "__name__");
  if (name == nullptr || !PyUnicode_Check(name)) {
    return true;
  }
  Py_ssize_t length = 0;
  const char* data = PyUnicode_AsUTF8AndSize(name, &length);
  if (data == nullptr) {
    PyErr_Clear();
    return true;
  }
  const std::string_view module(data, static_cast<size_t>(length));
  return (module == "torch" || module.starts_with("torch.") ||
          module.starts_with("torch_opencl")) &&
         !module.starts_with("torch._dynamo.variables") &&
         std::find(kModulesThatCompare.begin(),
                   kModulesThatCompare.end(),
                   module) == kModulesThatCompare.end();
}

bool shown_as_cuda(PyObject* self) {
  return reinterpret_cast<THPDevice*>(self)->device.is_privateuseone() &&
         !asked_by_torch();
}

getter torch_type = nullptr;
reprfunc torch_repr = nullptr;
reprfunc torch_str = nullptr;

PyObject* device_type(PyObject* self, void* closure) {
  if (shown_as_cuda(self)) {
    counts().add("device.type == \"cuda\"");
    return PyUnicode_FromString("cuda");
  }
  return torch_type(self, closure);
}

std::string cuda_index(PyObject* self, const char* before) {
  const c10::Device& device = reinterpret_cast<THPDevice*>(self)->device;
  return device.has_index() ? before + std::to_string(device.index()) : "";
}

PyObject* device_repr(PyObject* self) {
  if (shown_as_cuda(self)) {
    const std::string text =
        "device(type='cuda'" + cuda_index(self, ", index=") + ")";
    return PyUnicode_FromString(text.c_str());
  }
  return torch_repr(self);
}

PyObject* device_str(PyObject* self) {
  if (shown_as_cuda(self)) {
    return PyUnicode_FromString(("cuda" + cuda_index(self, ":")).c_str());
  }
  return torch_str(self);
}

// torch.device is a static type, whose attributes Python does not let anyone
// set.
void show_devices_as_cuda() {
  PyObject* original = PyDict_GetItemString(THPDeviceType.tp_dict, "type");
  if (original == nullptr || Py_TYPE(original) != &PyGetSetDescr_Type) {
    throw std::runtime_error("torch.device has no attribute type");
  }
  torch_type = reinterpret_cast<PyGetSetDescrObject*>(original)->d_getset->get;
  torch_repr = THPDeviceType.tp_repr;
  torch_str = THPDeviceType.tp_str;
  static PyGetSetDef definition = {
      "type", &device_type, nullptr, nullptr, nullptr};
  const auto descriptor = py::reinterpret_steal<py::object>(
      PyDescr_NewGetSet(&THPDeviceType, &definition));
  if (!descriptor ||
      PyDict_SetItemString(THPDeviceType.tp_dict, "type", descriptor.ptr()) !=
          0) {
    throw python_error();
  }
  THPDeviceType.tp_repr = &device_repr;
  THPDeviceType.tp_str = &device_str;
  PyType_Modified(&THPDeviceType);
}

// False where a function is not imported: not the torch this was made for.
bool redirect_cuda_names() {
  const bool replaced =
      replace_imported_function(
          kDeviceOfString, reinterpret_cast<void*>(&device_of_string)) > 0 &&
      redirect_autocast();
  if (replaced && torch_type == nullptr) {
    show_devices_as_cuda();
  }
  return replaced;
}

}  // namespace

void bind_cuda_names(py::module_& m) {
  m.def("_redirect_cuda_names",
        torch::wrap_pybind_function(&redirect_cuda_names));
  m.def("_redirected_cuda_names", [] { return counts().all(); });
}

}  // namespace torch_opencl
