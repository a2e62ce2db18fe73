// The visible CPU fallback: an op, or a dtype of an op, without a kernel here
// runs on the CPU. TORCH_OPENCL_FALLBACK says what the user hears of it.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch_opencl::aten {

void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// (aten overload, number of calls), most frequent first.
std::vector<std::pair<std::string, int64_t>> fallback_stats();
void reset_fallback_stats();

// False for complex tensors, which kernels do not compute with, and for
// float64 on a device without it. Non-opencl tensors do not count.
bool is_supported(const at::Tensor& tensor);

namespace detail {

template <class T>
bool is_argument_supported(const T& argument) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return is_supported(argument);
  } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
    return !argument.has_value() || is_supported(*argument);
  } else if constexpr (std::is_same_v<T, at::ITensorListRef>) {
    for (const at::Tensor& tensor : argument) {
      if (!is_supported(tensor)) {
        return false;
      }
    }
    return true;
  } else if constexpr (std::is_same_v<T, at::Scalar>) {
    return !argument.isComplex();
  } else if constexpr (std::is_same_v<T, std::optional<at::ScalarType>>) {
    return !argument.has_value() || !at::isComplexType(*argument);
  } else {
    return true;
  }
}

}  // namespace detail

// Registers Function for Op; calls with unsupported dtypes go to the fallback.
template <class Op, auto Function>
struct WithFallback;
template <class Op, class R, class... A, R (*Function)(A...)>
struct WithFallback<Op, Function> {
  static R call(A... arguments) {
    if (!(detail::is_argument_supported<std::decay_t<A>>(arguments) && ...)) {
      return at::native::call_fallback_fn<&cpu_fallback, Op>::call(
          arguments...);
    }
    return Function(std::forward<A>(arguments)...);
  }
};

}  // namespace torch_opencl::aten
