// Registers kernels on PyTorch's own structured meta functions: shapes, type
// promotion, aliasing and error texts come from at::meta, and one kernel
// serves the functional, in-place and out variants.
//
//   struct mm_out : at::meta::structured_mm {
//     void impl(const Tensor& self, const Tensor& mat2, const Tensor& out);
//   };
//   structured<mm_out, at::_ops::mm_out>(m);
//
// Core derives X and X_ from X.out for every backend, so registering the .out
// overload suffices. What a variant is follows from its schema in at::_ops.
#pragma once

#include "factories.h"
#include "fallback.h"

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/op_registration/adaption.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace torch_opencl::aten {

enum class Variant { kFunctional, kInplace, kOut };

namespace detail {

template <class Function>
struct Signature;
template <class R, class... A>
struct Signature<R(A...)> {
  using Return = R;
  using Arguments = std::tuple<A...>;
};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...)> : Signature<R(A...)> {};

template <class R>
constexpr size_t output_count = 1;
template <class... T>
constexpr size_t output_count<std::tuple<T...>> = sizeof...(T);

template <class R>
constexpr bool returns_new_tensors = std::is_same_v<R, at::Tensor>;
template <class... T>
constexpr bool returns_new_tensors<std::tuple<T...>> =
    (std::is_same_v<T, at::Tensor> && ...);

template <class S>
constexpr Variant variant_of() {
  if constexpr (returns_new_tensors<typename S::Return>) {
    return Variant::kFunctional;
  } else if constexpr (std::is_same_v<
                           std::tuple_element_t<0, typename S::Arguments>,
                           at::Tensor&>) {
    return Variant::kInplace;
  } else {
    return Variant::kOut;
  }
}

// Dispatcher argument -> parameter of meta() and impl().
template <class Parameter, class Argument>
decltype(auto) to_parameter(Argument& argument) {
  using To = std::decay_t<Parameter>;
  using From = std::decay_t<Argument>;
  if constexpr (std::is_same_v<To, at::OptionalTensorRef> &&
                std::is_same_v<From, std::optional<at::Tensor>>) {
    return argument.has_value() && argument->defined()
               ? at::OptionalTensorRef(*argument)
               : at::OptionalTensorRef();
  } else if constexpr (std::is_same_v<To, at::OptionalScalarRef> &&
                       std::is_same_v<From, std::optional<at::Scalar>>) {
    return argument.has_value() ? at::OptionalScalarRef(*argument)
                                : at::OptionalScalarRef();
  } else {
    return static_cast<Parameter>(argument);
  }
}

template <class T>
constexpr bool holds_tensors = std::is_same_v<T, at::Tensor> ||
                               std::is_same_v<T, std::optional<at::Tensor>>;

template <class T>
void check_device(std::optional<at::Device>& common,
                  const T& argument,
                  const char* op) {
  if constexpr (std::is_same_v<T, at::ITensorListRef>) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      check_device(common, tensor, op);
    });
  } else if constexpr (holds_tensors<T>) {
    c10::impl::check_and_update_common_device(common, argument, op, "argument");
  }
}

// Kernel: derives from at::meta::structured_*, has impl(). Output tensors are
// created, resized or checked as meta() announces them. An in-place or out
// tensor whose strides meta() does not allow is written through a temporary.
template <class Kernel, Variant kVariant, size_t kOutputs>
struct Instance final : Kernel {
  static constexpr bool kIsIterator =
      std::is_base_of_v<at::TensorIteratorBase, Kernel>;

  std::array<at::Tensor, kOutputs> outputs;
  std::array<at::Tensor, kOutputs> temporaries;
  c10::OptionalDeviceGuard guard;

  const at::Tensor& output(size_t i) const {
    return temporaries[i].defined() ? temporaries[i] : outputs[i];
  }
  const at::Tensor& maybe_get_output(int64_t i) override { return output(i); }

  void set_output_strided(int64_t i,
                          at::IntArrayRef sizes,
                          at::IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output(i, sizes, strides, options, true);
  }
  void set_output_raw_strided(int64_t i,
                              at::IntArrayRef sizes,
                              at::IntArrayRef strides,
                              at::TensorOptions options) override {
    set_output(i, sizes, strides, options, false);
  }

  void set_output(int64_t i,
                  at::IntArrayRef sizes,
                  at::IntArrayRef strides,
                  const at::TensorOptions& options,
                  bool strides_are_required) {
    if (!guard.current_device().has_value()) {
      guard.reset_device(options.device());
    }
    if constexpr (kVariant == Variant::kFunctional) {
      outputs[i] = empty_like_meta(sizes, strides, options);
    } else {
      if constexpr (kVariant == Variant::kInplace) {
        check_inplace(outputs[i], sizes, options);
      } else {
        resize_out(outputs[i], sizes, strides, options);
      }
      if (strides_are_required && !strides.empty() &&
          outputs[i].strides() != strides) {
        temporaries[i] = empty_like_meta(sizes, strides, options);
      }
    }
    if constexpr (kIsIterator) {
      // The iterator keeps a table of its operands.
      Kernel::set_output_raw_strided(i, sizes, strides, options);
    }
  }

  void copy_back() {
    for (size_t i = 0; i < kOutputs; ++i) {
      if (temporaries[i].defined()) {
        outputs[i].copy_(temporaries[i]);
      }
    }
  }
};

template <class Kernel,
          class Op,
          Numbers kNumbers,
          class Return,
          class Arguments>
struct Entry;

template <class Kernel, class Op, Numbers kNumbers, class Return, class... A>
struct Entry<Kernel, Op, kNumbers, Return, std::tuple<A...>> {
  static constexpr Variant kVariant = variant_of<Signature<Return(A...)>>();
  static constexpr size_t kOutputs = output_count<std::decay_t<Return>>;
  static constexpr size_t kInputs =
      sizeof...(A) - (kVariant == Variant::kOut ? kOutputs : 0);
  using Meta = Signature<decltype(&Kernel::meta)>;

  static Return call(A... arguments) {
    if constexpr (!std::is_base_of_v<at::TensorIteratorBase, Kernel>) {
      std::optional<at::Device> common;
      (check_device<std::decay_t<A>>(common, arguments, Op::name), ...);
    }
    if (!(is_argument_supported<std::decay_t<A>>(arguments, kNumbers) && ...)) {
      return at::native::call_fallback_fn<&cpu_fallback, Op>::call(
          arguments...);
    }
    auto references = std::forward_as_tuple(arguments...);
    return run(references,
               std::make_index_sequence<kInputs>(),
               std::make_index_sequence<kOutputs>());
  }

 private:
  template <class T, size_t... I, size_t... O>
  static Return run(T& arguments,
                    std::index_sequence<I...>,
                    std::index_sequence<O...>) {
    using Parameters = typename Meta::Arguments;
    static_assert(std::tuple_size_v<Parameters> == kInputs,
                  "schema and meta() disagree: is this the right op group?");
    Instance<Kernel, kVariant, kOutputs> kernel;
    if constexpr (kVariant == Variant::kInplace) {
      kernel.outputs[0] = std::get<0>(arguments);
    }
    if constexpr (kVariant == Variant::kOut) {
      ((kernel.outputs[O] = std::get<kInputs + O>(arguments)), ...);
    }
    if constexpr (std::is_void_v<typename Meta::Return>) {
      kernel.meta(to_parameter<std::tuple_element_t<I, Parameters>>(
          std::get<I>(arguments))...);
      kernel.impl(to_parameter<std::tuple_element_t<I, Parameters>>(
                      std::get<I>(arguments))...,
                  kernel.output(O)...);
    } else {
      // A `precomputed:` group: impl() gets what meta() found out, first.
      auto precomputed =
          kernel.meta(to_parameter<std::tuple_element_t<I, Parameters>>(
              std::get<I>(arguments))...);
      kernel.impl(precomputed,
                  to_parameter<std::tuple_element_t<I, Parameters>>(
                      std::get<I>(arguments))...,
                  kernel.output(O)...);
    }
    kernel.copy_back();
    if constexpr (kVariant == Variant::kFunctional) {
      if constexpr (kOutputs == 1) {
        return std::move(kernel.outputs[0]);
      } else {
        return Return(std::move(kernel.outputs[O])...);
      }
    } else if constexpr (kVariant == Variant::kInplace) {
      return std::get<0>(arguments);
    } else if constexpr (kOutputs == 1) {
      return std::get<kInputs>(arguments);
    } else {
      return Return(std::get<kInputs + O>(arguments)...);
    }
  }
};

}  // namespace detail

// A run-time function pointer, not TORCH_FN: one boxing wrapper a signature
// instead of one an op, which saves a third of the compile time.
template <class Kernel, class Op, Numbers kNumbers = Numbers::kReal>
void structured(torch::Library& library) {
  using S = detail::Signature<
      typename c10::fn_remove_symint<typename Op::schema>::type>;
  using E = detail::
      Entry<Kernel, Op, kNumbers, typename S::Return, typename S::Arguments>;
  library.impl(name_of<Op>().c_str(), &E::call);
}

}  // namespace torch_opencl::aten
