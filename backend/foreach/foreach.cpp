// _foreach_*: multi-tensor apply where the lists are alike, calls in a row
// fused into one launch, else ATen's own loop over the tensors.
#include "fused_group.h"

#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../common/half_numbers.h"
#include "../float8/float8.h"

#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_foreach_abs_ops.h>
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_foreach_addcdiv_ops.h>
#include <ATen/ops/_foreach_addcmul_ops.h>
#include <ATen/ops/_foreach_clamp_max_ops.h>
#include <ATen/ops/_foreach_clamp_min_ops.h>
#include <ATen/ops/_foreach_copy_ops.h>
#include <ATen/ops/_foreach_div_ops.h>
#include <ATen/ops/_foreach_exp_ops.h>
#include <ATen/ops/_foreach_lerp_ops.h>
#include <ATen/ops/_foreach_maximum_ops.h>
#include <ATen/ops/_foreach_minimum_ops.h>
#include <ATen/ops/_foreach_mul_ops.h>
#include <ATen/ops/_foreach_neg_ops.h>
#include <ATen/ops/_foreach_reciprocal_ops.h>
#include <ATen/ops/_foreach_sign_ops.h>
#include <ATen/ops/_foreach_sqrt_ops.h>
#include <ATen/ops/_foreach_sub_ops.h>
#include <ATen/ops/_foreach_zero_ops.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using at::TensorList;

// The arguments of a call by their kinds, in the order of the schema: lists are
// x, y and z in the expressions, numbers a and b.
struct Call {
  std::vector<TensorList> lists;
  std::vector<std::vector<double>> scalars;
  bool is_supported = true;

  // Of complex numbers and bools the op of single tensors decides.
  static bool is_real(const at::Scalar& scalar) {
    return scalar.isFloatingPoint() || scalar.isIntegral(false);
  }
  void take(TensorList list) { lists.push_back(list); }
  void take(const at::Scalar& scalar) {
    is_supported &= is_real(scalar);
    if (is_supported) {
      scalars.push_back({scalar.to<double>()});
    }
  }
  void take(at::ArrayRef<at::Scalar> list) {
    std::vector<double> values;
    for (const at::Scalar& scalar : list) {
      is_supported &= is_real(scalar);
      values.push_back(is_supported ? scalar.to<double>() : 0);
    }
    is_supported &= lists.empty() || values.size() == lists[0].size();
    scalars.push_back(std::move(values));
  }
  // A number that waits on a device stays there.
  void take(const Tensor& tensor) {
    is_supported &= tensor.device().is_cpu() && tensor.dim() == 0;
    if (is_supported) {
      take(tensor.item());
    }
  }
  void take(bool) {}
};

constexpr const char* kCopied = "y";

bool is_fast(const Call& call, const char* expression) {
  const TensorList self = call.lists[0];
  if (!call.is_supported || self.empty() ||
      !at::isFloatingType(self[0].scalar_type()) ||
      (is_float8(self[0]) && expression != kCopied)) {
    return false;
  }
  for (const TensorList& list : call.lists) {
    if (list.size() != self.size()) {
      return false;
    }
    for (size_t t = 0; t < list.size(); ++t) {
      const Tensor& tensor = list[t];
      if (!tensor.is_privateuseone() || tensor.device() != self[0].device() ||
          tensor.scalar_type() != self[0].scalar_type() ||
          tensor.sizes() != self[t].sizes() ||
          tensor.strides() != self[t].strides() ||
          !tensor.is_non_overlapping_and_dense()) {
        return false;
      }
    }
  }
  return self[0].scalar_type() != at::kDouble ||
         aten::device_of(self[0]).info().has_fp64;
}

constexpr const char* kPlusNumber = "x + a";
constexpr const char* kMinusNumber = "x - a";
constexpr const char* kMaximum = "x > y || isnan(x) ? x : y";
constexpr const char* kMinimum = "x < y || isnan(x) ? x : y";
constexpr const char* kMaximumOfNumber = "x > a || isnan(x) ? x : a";
constexpr const char* kMinimumOfNumber = "x < a || isnan(x) ? x : a";
constexpr const char* kLerp =
    "fabs(a) < REAL(0.5) ? x + a * (y - x) : y - (y - x) * (1 - a)";
constexpr const char* kLerpOfList =
    "fabs(z) < REAL(0.5) ? x + z * (y - x) : y - (y - x) * (1 - z)";

// As in the ops of single tensors: a number has the dtype of the tensors, but
// in products and quotients.
bool rounds_numbers(const char* expression) {
  return expression == kPlusNumber || expression == kMinusNumber ||
         expression == kMaximumOfNumber || expression == kMinimumOfNumber;
}

// Of the dtype, or the integer as which the elements are copied: half types
// would lose NaNs' bits on their way through float32.
std::vector<Tensor> moved(TensorList list) {
  std::vector<Tensor> result;
  result.reserve(list.size());
  for (const Tensor& tensor : list) {
    const bool is_half = tensor.element_size() == 2;
    result.push_back(is_half ? tensor.view(at::kShort) : as_bytes(tensor));
  }
  return result;
}

bool run(const char* name,
         const char* expression,
         const Call& call,
         TensorList out) {
  if (expression == kCopied) {
    const std::vector<Tensor> to = moved(out);
    const std::vector<Tensor> from = moved(call.lists[1]);
    return run_foreach({name, expression, {to, from, to}, {}});
  }
  ForeachCall fused{name, expression, call.lists, call.scalars};
  fused.lists.push_back(out);
  if (rounds_numbers(expression)) {
    for (std::vector<double>& values : fused.scalars) {
      for (double& value : values) {
        value = rounded_to_half(value, out[0].scalar_type());
      }
    }
  }
  return run_foreach(fused);
}

// The slow kernels are composite, so every key has them but ours.
const c10::DispatchKeySet kSlow(c10::DispatchKey::CPU);

template <class Op, class Schema>
struct Foreach;

// In place.
template <class Op, class... A>
struct Foreach<Op, void(A...)> {
  static inline const char* expression = nullptr;
  static void call(A... arguments) {
    Call call;
    (call.take(arguments), ...);
    if (!is_fast(call, expression) ||
        !run(Op::name, expression, call, call.lists[0])) {
      Op::redispatch(kSlow, arguments...);
      return;
    }
    // Autograd counts writes of single tensors by itself, not those of lists.
    for (const Tensor& written : call.lists[0]) {
      written.unsafeGetTensorImpl()->bump_version();
    }
  }
};

template <class Op, class... A>
struct Foreach<Op, std::vector<Tensor>(A...)> {
  static inline const char* expression = nullptr;
  static std::vector<Tensor> call(A... arguments) {
    Call call;
    (call.take(arguments), ...);
    if (is_fast(call, expression)) {
      std::vector<Tensor> out;
      out.reserve(call.lists[0].size());
      for (const Tensor& tensor : call.lists[0]) {
        out.push_back(at::empty_like(tensor));
      }
      if (run(Op::name, expression, call, out)) {
        return out;
      }
    }
    return Op::redispatch(kSlow, arguments...);
  }
};

template <class Op>
void foreach (torch::Library& library, const char* expression) {
  using F = Foreach<Op, typename Op::schema>;
  F::expression = expression;
  library.impl(aten::name_of<Op>().c_str(), &F::call);
}

}  // namespace

#define BOTH(name, overload, expression)                     \
  foreach                                                    \
    <at::_ops::_foreach_##name##_##overload>(m, expression); \
  foreach                                                    \
  <at::_ops::_foreach_##name##__##overload>(m, expression)
#define BOTH_UNARY(name, expression)            \
  foreach                                       \
    <at::_ops::_foreach_##name>(m, expression); \
  foreach                                       \
  <at::_ops::_foreach_##name##_>(m, expression)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  BOTH(add, Scalar, kPlusNumber);
  BOTH(add, ScalarList, kPlusNumber);
  BOTH(add, List, "x + a * y");
  BOTH(add, Tensor, "x + b * a");
  BOTH(sub, Scalar, kMinusNumber);
  BOTH(sub, ScalarList, kMinusNumber);
  BOTH(sub, List, "x - a * y");
  BOTH(mul, Scalar, "x * a");
  BOTH(mul, ScalarList, "x * a");
  BOTH(mul, List, "x * y");
  BOTH(mul, Tensor, "x * a");
  BOTH(div, Scalar, "x / a");
  BOTH(div, ScalarList, "x / a");
  BOTH(div, List, "x / y");
  BOTH(div, Tensor, "x / a");
  BOTH(addcmul, Scalar, "x + a * y * z");
  BOTH(addcmul, ScalarList, "x + a * y * z");
  BOTH(addcdiv, Scalar, "x + a * y / z");
  BOTH(addcdiv, ScalarList, "x + a * y / z");
  BOTH(lerp, Scalar, kLerp);
  BOTH(lerp, ScalarList, kLerp);
  BOTH(lerp, List, kLerpOfList);
  BOTH(maximum, List, kMaximum);
  BOTH(maximum, Scalar, kMaximumOfNumber);
  BOTH(minimum, List, kMinimum);
  BOTH(minimum, Scalar, kMinimumOfNumber);
  BOTH(clamp_min, List, kMaximum);
  BOTH(clamp_min, Scalar, kMaximumOfNumber);
  BOTH(clamp_max, List, kMinimum);
  BOTH(clamp_max, Scalar, kMinimumOfNumber);
  BOTH_UNARY(sqrt, "sqrt(x)");
  BOTH_UNARY(neg, "-x");
  BOTH_UNARY(abs, "fabs(x)");
  BOTH_UNARY(reciprocal, "1 / x");
  BOTH_UNARY(exp, "exp(x)");
  BOTH_UNARY(sign, "sign(x)");
  foreach
    <at::_ops::_foreach_zero_>(m, "0");
  foreach
    <at::_ops::_foreach_copy_>(m, kCopied);
}

#undef BOTH
#undef BOTH_UNARY

}  // namespace torch_opencl::ops
