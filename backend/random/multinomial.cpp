// multinomial: ATen's own checks and its way without replacement; with
// replacement, draws are looked up in the sums of the weights. Also
// _assert_async, by which ATen checks the weights.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"

#include <ATen/native/UnaryOps.h>
#include <ATen/ops/_assert_async_native.h>
#include <ATen/ops/_functional_assert_async_native.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/multinomial_native.h>
#include <ATen/ops/multinomial_ops.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <cmath>

namespace torch_opencl::ops {
namespace {

using at::Tensor;
using aten::WithFallback;

// A draw's last bit times this is no subnormal number.
constexpr double kLeastSum = 1e-30;

// Whether rows have to be scaled: draws times sums that are out of this range
// may be the sums, or NaN. Waits for the device, as ATen's way without
// replacement does.
bool check_weights(const Tensor& weights, const Tensor& sums) {
  const Tensor host =
      at::stack({weights.min(), weights.max(), sums.min(), sums.max()})
          .to(at::Device(at::kCPU), at::kDouble);
  const double* found = host.const_data_ptr<double>();
  TORCH_CHECK(found[0] >= 0,
              "invalid multinomial distribution (encountering probability "
              "entry < 0)");
  TORCH_CHECK(std::isfinite(found[1]),
              "invalid multinomial distribution (encountering probability "
              "entry = infinity or NaN)");
  TORCH_CHECK(found[2] > 0,
              "invalid multinomial distribution (sum of probabilities <= 0)");
  return !std::isfinite(found[3]) || found[2] < kLeastSum;
}

void with_replacement(Tensor& result,
                      const Tensor& self,
                      int64_t samples,
                      std::optional<at::Generator> generator) {
  if (result.numel() == 0) {
    return;
  }
  const Tensor weights = self.to(aten::compute_type(self.scalar_type()));
  const Tensor cumulative = weights.cumsum(-1);
  const Tensor sums = cumulative.narrow(-1, cumulative.size(-1) - 1, 1);
  if (check_weights(weights, sums)) {
    return with_replacement(result,
                            weights.div(weights.amax(-1, /*keepdim=*/true)),
                            samples,
                            std::move(generator));
  }
  // To the right of equal sums: a category of weight 0 is never drawn. A draw
  // of less than 1 times a sum is rounded to less than the sum.
  at::searchsorted_out(
      result,
      cumulative,
      at::rand(result.sizes(), std::move(generator), weights.options())
          .mul_(sums),
      /*out_int32=*/false,
      /*right=*/true);
}

// In ATen's words, which WithFallback's check of devices would forestall.
Tensor& multinomial_out(const Tensor& self,
                        int64_t num_samples,
                        bool replacement,
                        std::optional<at::Generator> generator,
                        Tensor& result) {
  TORCH_CHECK(self.device() == result.device(),
              "multinomial arguments must have the same device");
  return WithFallback<at::_ops::multinomial_out,
                      &at::native::multinomial_out>::call(self,
                                                          num_samples,
                                                          replacement,
                                                          std::move(generator),
                                                          result);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("multinomial",
         &WithFallback<at::_ops::multinomial, &at::native::multinomial>::call);
  m.impl("multinomial.out", &multinomial_out);
  // Waits too: an error has to be raised by the call that makes it.
  m.impl("_assert_async", TORCH_FN(at::native::_assert_async_cpu));
  m.impl("_assert_async.msg", TORCH_FN(at::native::_assert_async_msg_cpu));
  m.impl("_functional_assert_async.msg",
         TORCH_FN(at::native::_functional_assert_async_msg_cpu));
}

}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(multinomial_with_replacement_stub,
                              &torch_opencl::ops::with_replacement)

}  // namespace at::native
