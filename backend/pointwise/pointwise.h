// The pointwise engine: "execute this TensorIterator" with one expression.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/native/Gelu.h>
#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

namespace torch_opencl::ops {

enum class Dtypes { kAll, kFloating, kIntegral };
// Ops that only bound their input by their numbers, which a pending launch can
// do: below by the first one, above by the last.
enum class Clamp { kNone, kBelow, kAbove, kBoth };

// A row of the pointwise table (backend/pointwise/ops.py).
struct PointwiseOp {
  const char* name;
  const char* expression;
  const char* bool_expression = "";      // empty: as `expression`
  const char* integral_expression = "";  // empty: as `expression`
  const char* complex_expression = "";   // empty: no complex numbers
  const char* inputs = "";               // names, in operand order
  const char* scalars = "";              // names, in argument order
  bool uses_math = false;                // calls functions of math.clh
  bool uses_complex_math = false;        // and of complex_math.clh
  Dtypes dtypes = Dtypes::kAll;          // of arithmetic; bool is integral
  bool is_vectorizable = false;          // `expression` holds for vectors too
  Clamp clamp = Clamp::kNone;
  // A last operand of one element is not rounded to float16 or bfloat16.
  bool keeps_numbers = false;
  // `scalars` are values of the common dtype, as they always are of an integral
  // one; one that it does not hold raises.
  bool checks_scalars = false;
  bool divides = false;  // by the last operand; integers not by zero
  bool counts = false;   // adds the last operand, times its number (counter.h)
  bool moves = false;    // the value is an operand's, whose bits it keeps
  bool keeps_integers = false;  // which are not rounded to a half, either
  // Names of inputs between 0 and 1; another number is reported.
  const char* probabilities = "";
  // Names of outputs, for kernels of users: `expression` is statements that
  // assign to them, and operands are not converted to a common dtype.
  const char* outputs = "";
  const char* preamble = "";  // stands before the kernel
};

constexpr int kMaxOperands = 8;

extern const PointwiseOp pointwise_ops[];

// Computes the outputs of the iterator, in any dtypes, strides and sizes.
// 0-dim CPU operands are passed by value.
void pointwise(at::TensorIteratorBase& iter,
               const PointwiseOp& op,
               c10::ArrayRef<at::Scalar> scalars);

// The operands that are rounded, as a TensorIterator on the CPU converts them:
// those of another dtype than the common one, where that is float16 or
// bfloat16.
uint8_t rounded_operands(const at::TensorIteratorBase& iter,
                         const PointwiseOp& op,
                         at::ScalarType common);

// The numbers among an op's arguments; the only string is gelu's `approximate`.
template <class T>
void append_scalar(std::vector<at::Scalar>& scalars, const T& argument) {
  using A = std::decay_t<T>;
  if constexpr (std::is_same_v<A, at::Scalar> || std::is_arithmetic_v<A>) {
    scalars.emplace_back(argument);
  } else if constexpr (std::is_enum_v<A>) {
    scalars.emplace_back(static_cast<int64_t>(argument));
  } else if constexpr (std::is_convertible_v<A, std::string_view>) {
    scalars.emplace_back(
        static_cast<int64_t>(at::native::get_gelutype_enum(argument)));
  }
}

template <class... Arguments>
void pointwise_with(at::TensorIteratorBase& iter,
                    const PointwiseOp& op,
                    const Arguments&... arguments) {
  std::vector<at::Scalar> scalars;
  (append_scalar(scalars, arguments), ...);
  pointwise(iter, op, scalars);
}

// A structured op on its meta function: the kernel behind one table row. Bit i
// of kScalars tells that argument i is a number of the expression.
template <class Meta,
          int kRow,
          unsigned kScalars,
          class Signature = decltype(&Meta::meta)>
struct PointwiseKernel;
template <class Meta, int kRow, unsigned kScalars, class C, class R, class... P>
struct PointwiseKernel<Meta, kRow, kScalars, R (C::*)(P...)> : Meta {
  void impl(P... arguments, const at::Tensor& /*out*/) {
    std::vector<at::Scalar> scalars;
    unsigned bit = 1;
    (((kScalars & bit) ? append_scalar(scalars, arguments) : void(), bit <<= 1),
     ...);
    pointwise(*this, pointwise_ops[kRow], scalars);
  }
};

// A DispatchStub's kernel behind one table row.
template <int kRow, class Function>
struct PointwiseStub;
template <int kRow, class Iterator, class... P>
struct PointwiseStub<kRow, void (*)(Iterator&, P...)> {
  static void call(Iterator& iter, P... arguments) {
    pointwise_with(iter, pointwise_ops[kRow], arguments...);
  }
};

}  // namespace torch_opencl::ops
