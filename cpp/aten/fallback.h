// The visible CPU fallback: an op, or a dtype of an op, without a kernel here
// runs on the CPU. TORCH_OPENCL_FALLBACK says what the user hears of it.
#pragma once

#include "same_device.h"

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/ScalarType.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch_opencl::aten {

void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// (aten overload, number of calls), most frequent first.
std::vector<std::pair<std::string, int64_t>> fallback_stats();
void reset_fallback_stats();

// The numbers that a kernel computes with. kAny: whatever it does not take, it
// says itself.
enum class Numbers { kReal, kRealAndComplex, kAny };

// False for complex tensors, where kernels do not compute with them, and for
// float64 and complex128 on a device without it. Non-opencl tensors that are
// real do not count.
bool is_supported(const at::Tensor& tensor, Numbers numbers = Numbers::kReal);

// float64 or complex128 of an opencl device without it, whose kernels can only
// move it.
bool lacks_float64(const at::Tensor& tensor);

// The iterators of a list ask at each step what it is.
template <class Call>
void for_each_tensor(const at::ITensorListRef& list, const Call& call) {
  if (list.isUnboxed()) {
    std::for_each(list.toUnboxed().begin(), list.toUnboxed().end(), call);
  } else {
    std::for_each(list.begin(), list.end(), call);
  }
}

namespace detail {

template <class T>
bool is_argument_supported(const T& argument, Numbers numbers) {
  const bool takes_complex = numbers != Numbers::kReal;
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return is_supported(argument, numbers);
  } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
    return !argument.has_value() || is_supported(*argument, numbers);
  } else if constexpr (std::is_same_v<T, at::ITensorListRef>) {
    bool all = true;
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      all &= is_supported(tensor, numbers);
    });
    return all;
  } else if constexpr (std::is_same_v<T, at::Scalar>) {
    return takes_complex || !argument.isComplex();
  } else if constexpr (std::is_same_v<T, std::optional<at::ScalarType>>) {
    return takes_complex || !argument.has_value() ||
           !at::isComplexType(*argument);
  } else {
    return true;
  }
}

// ATen's host functions go by the device of their first tensor, and read the
// memory of the others.
template <class First, class... Others>
void check_device_of_first(const First& first, const Others&...) {
  if constexpr (std::is_same_v<First, at::Tensor>) {
    if (first.defined() && !is_number_on_cpu(first)) {
      check_is_opencl(first.device());
    }
  }
}

}  // namespace detail

// Registers Function for Op; calls with unsupported dtypes go to the fallback.
template <class Op, auto Function, Numbers kNumbers = Numbers::kReal>
struct WithFallback;
template <class Op, class R, class... A, R (*Function)(A...), Numbers kNumbers>
struct WithFallback<Op, Function, kNumbers> {
  static R call(A... arguments) {
    detail::check_device_of_first(arguments...);
    if (!(detail::is_argument_supported<std::decay_t<A>>(arguments, kNumbers) &&
          ...)) {
      return at::native::call_fallback_fn<&cpu_fallback, Op>::call(
          arguments...);
    }
    return Function(std::forward<A>(arguments)...);
  }
};

// Of an op of at::_ops, with its overload's.
template <class Op>
std::string name_of() {
  const std::string overload = Op::overload_name;
  return overload.empty() ? Op::name : Op::name + ("." + overload);
}

// Registers Function for Op. It says itself what it does not take, but for
// float64 on a device that has none.
template <class Op, auto Function>
void native(torch::Library& library) {
  library.impl(name_of<Op>().c_str(),
               &WithFallback<Op, Function, Numbers::kAny>::call);
}

// Of an op without sizes: Function takes what the op's arguments convert to.
template <class Op, auto Function, class Schema = typename Op::schema>
struct WithConversions;
template <class Op, auto Function, class R, class... A>
struct WithConversions<Op, Function, R(A...)> {
  static R call(A... arguments) {
    return Function(std::forward<A>(arguments)...);
  }
};

}  // namespace torch_opencl::aten
