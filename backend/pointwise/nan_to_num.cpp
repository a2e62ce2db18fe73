// nan_to_num: the numbers left out depend on the dtype.
#include "../../cpp/aten/fallback.h"
#include "pointwise.h"

#include <ATen/Dispatch.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/nan_to_num_native.h>
#include <ATen/ops/nan_to_num_ops.h>
#include <torch/library.h>

#include <limits>
#include <optional>

namespace torch_opencl::ops {
namespace {

constexpr PointwiseOp kNanToNum{
    .name = "nan_to_num",
    .expression =
        "isnan(self) ? not_a_number : self == INFINITY ? positive : "
        "self == -INFINITY ? negative : self",
    .integral_expression = "self",
    .inputs = "self",
    .scalars = "not_a_number positive negative",
    .is_vectorizable = true};

void nan_to_num(at::TensorIteratorBase& iter,
                std::optional<double> nan,
                std::optional<double> posinf,
                std::optional<double> neginf) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, iter.dtype(1), "nan_to_num", [&] {
        const double largest = std::numeric_limits<scalar_t>::max();
        pointwise(iter,
                  kNanToNum,
                  {nan.value_or(0),
                   posinf.value_or(largest),
                   neginf.value_or(-largest)});
      });
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nan_to_num.out",
         &aten::WithFallback<at::_ops::nan_to_num_out,
                             &at::native::nan_to_num_out>::call);
}

}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(nan_to_num_stub, &torch_opencl::ops::nan_to_num)

}  // namespace at::native
