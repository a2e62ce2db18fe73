// Strided nested tensors (torch.nested) on a device.
// Their elements lie in one buffer, their sizes on the CPU.
#include "nested.h"

#include "fallback_policy.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace torch_opencl::aten {
namespace {

using at::Tensor;
using c10::IValue;

// ATen's functions for NestedTensorCPU that call ops of the buffer and read no
// element.
bool is_of_buffers(const c10::FunctionSchema& schema) {
  static const auto* names = new std::unordered_set<std::string_view>{
      "aten::_nested_tensor_size",
      "aten::_nested_tensor_storage_offsets",
      "aten::_nested_tensor_strides",
      "aten::_to_copy",
      "aten::add_",
      "aten::clone",
      "aten::copy_",
      "aten::empty_like",
      "aten::fill_",
      "aten::gelu_",
      "aten::is_same_size",
      "aten::mul_",
      "aten::relu_",
      "aten::tanh_",
      "aten::zero_",
  };
  if (names->contains(schema.name())) {
    return true;
  }
  const auto is_view = [](const c10::Argument& result) {
    return result.alias_info() && !result.alias_info()->isWrite();
  };
  return std::any_of(schema.returns().begin(), schema.returns().end(), is_view);
}

Tensor moved(const Tensor& tensor, at::Device device) {
  if (!tensor.defined() || !tensor.is_nested()) {
    return tensor.defined() ? tensor.to(device) : tensor;
  }
  const auto* nested = at::native::get_nested_tensor_impl(tensor);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      nested->get_unsafe_storage_as_tensor().to(device),
      nested->get_nested_sizes(),
      nested->get_nested_strides(),
      nested->get_storage_offsets());
}

IValue moved(const IValue& value, at::Device device) {
  if (value.isTensor()) {
    return moved(value.toTensor(), device);
  }
  if (value.isDevice()) {
    return device;
  }
  if (value.isTensorList()) {
    c10::List<Tensor> tensors;
    for (const Tensor& tensor : value.toTensorVector()) {
      tensors.push_back(moved(tensor, device));
    }
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> tensors;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorVector()) {
      tensors.push_back(tensor ? std::optional(moved(*tensor, device))
                               : std::nullopt);
    }
    return tensors;
  }
  return value;
}

// That of the first tensor of the device.
std::optional<at::Device> device_of(c10::ArrayRef<IValue> arguments) {
  const auto is_here = [](const Tensor& tensor) {
    return tensor.defined() && tensor.is_privateuseone();
  };
  for (const IValue& value : arguments) {
    if (value.isTensor() && is_here(value.toTensor())) {
      return value.toTensor().device();
    }
    if (value.isTensorList()) {
      const std::vector<Tensor> list = value.toTensorVector();
      const auto found = std::find_if(list.begin(), list.end(), is_here);
      if (found != list.end()) {
        return found->device();
      }
    }
  }
  return std::nullopt;
}

void move_last(torch::jit::Stack* stack, size_t count, at::Device device) {
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    (*stack)[i] = moved((*stack)[i], device);
  }
}

}  // namespace

void nested_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (is_of_buffers(schema) &&
      op.hasKernelForDispatchKey(c10::DispatchKey::NestedTensorCPU)) {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::NestedTensorCPU),
                       stack);
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !schema.is_mutable(),
      "The operator '",
      c10::toString(schema.operator_name()),
      "' does not write to nested tensors on the opencl device. Use the form "
      "that returns its result.");
  const size_t count = schema.arguments().size();
  const auto arguments = torch::jit::last(*stack, count);
  check_devices(arguments);
  note_fallback(op, arguments);
  const std::optional<at::Device> device = device_of(arguments);
  move_last(stack, count, at::kCPU);
  op.callBoxed(stack);
  if (device) {
    move_last(stack, schema.returns().size(), *device);
  }
}

namespace {

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&nested_fallback>());
}

// From dense to nested: the gradient of values().
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_view_from_buffer",
         TORCH_FN(at::native::_nested_view_from_buffer));
}

// What ATen has a function for, and would compose of others without it.
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  for (const char* name :
       {"chunk", "linear", "matmul", "narrow", "silu_backward"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&nested_fallback>());
  }
}

}  // namespace
}  // namespace torch_opencl::aten
