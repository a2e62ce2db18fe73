// Fake quantisation: the arithmetic of ATen's functions, which CPU and CUDA
// share.
#include "../../cpp/aten/fallback.h"
#include "../pointwise/pointwise.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/quantized/FakeQuantAffine.h>
#include <ATen/ops/_fake_quantize_learnable_per_channel_affine_backward_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_channel_affine_backward_ops.h>
#include <ATen/ops/_fake_quantize_learnable_per_channel_affine_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_channel_affine_ops.h>
#include <ATen/ops/_fake_quantize_learnable_per_tensor_affine_backward_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_tensor_affine_backward_ops.h>
#include <ATen/ops/_fake_quantize_learnable_per_tensor_affine_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_tensor_affine_ops.h>
#include <ATen/ops/_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.h>
#include <ATen/ops/_fake_quantize_per_tensor_affine_cachemask_tensor_qparams_native.h>
#include <ATen/ops/_fake_quantize_per_tensor_affine_cachemask_tensor_qparams_ops.h>
#include <ATen/ops/_fused_moving_avg_obs_fq_helper_native.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask_native.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask_ops.h>
#include <ATen/ops/fake_quantize_per_tensor_affine_cachemask_native.h>
#include <ATen/ops/fake_quantize_per_tensor_affine_cachemask_ops.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <array>

namespace torch_opencl::ops {
namespace {

using at::Tensor;
using aten::native;

// The quantised number before it is clamped; a NaN is below all. Gradients, and
// zero points that are not whole, are rounded after the sum, as on the CPU.
#define LEVEL(inverse)                   \
  "const compute_t zero = zero_point;\n" \
  "const compute_t level = zero + rint((compute_t)self * (" inverse "));\n"
#define LEVEL_OF_SUM(inverse)                                              \
  "const compute_t zero = zero_point;\n"                                   \
  "const compute_t level = rint(fma((compute_t)self, (compute_t)(" inverse \
  "), zero));\n"
#define CLAMPED "(fmin(fmax(level, quant_min), quant_max) - zero)"
#define IS_INSIDE "(level >= quant_min && level <= quant_max)"

constexpr PointwiseOp kTensor{
    .name = "fake_quantize_per_tensor_affine",
    .expression =
        LEVEL("inverse") "result = " CLAMPED " * scale;\nmask = " IS_INSIDE,
    .inputs = "self",
    .scalars = "scale inverse zero_point quant_min quant_max",
    .outputs = "result mask"};

constexpr PointwiseOp kTensorQparams{
    .name = "fake_quantize_per_tensor_affine_tensor_qparams",
    .expression = LEVEL("1.0f / scale") "result = enabled ? " CLAMPED
                                        " * scale : self;\n"
                                        "mask = !enabled || " IS_INSIDE,
    .inputs = "self scale zero_point enabled",
    .scalars = "quant_min quant_max",
    .outputs = "result mask"};

constexpr PointwiseOp kChannel{
    .name = "fake_quantize_per_channel_affine",
    .expression = LEVEL("1.0f / scale") "result = " CLAMPED
                                        " * scale;\nmask = " IS_INSIDE,
    .inputs = "self scale zero_point",
    .scalars = "quant_min quant_max",
    .outputs = "result mask"};

constexpr PointwiseOp kChannelFloatZeroPoint{
    .name = "fake_quantize_per_channel_affine_float_zero_point",
    .expression = LEVEL_OF_SUM("1.0f / scale") "result = " CLAMPED
                                               " * scale;\nmask = " IS_INSIDE,
    .inputs = "self scale zero_point",
    .scalars = "quant_min quant_max",
    .outputs = "result mask"};

// What is clamped does not depend on self, and the level not on the zero point.
#define GRADIENTS(inverse)                                               \
  LEVEL_OF_SUM(inverse)                                                  \
  "of_self = " IS_INSIDE                                                 \
  " ? grad : 0;\n"                                                       \
  "of_zero_point = " IS_INSIDE                                           \
  " ? 0 : -grad * scale * grad_factor;\n"                                \
  "of_scale = (" IS_INSIDE " ? grad * (" CLAMPED                         \
  " * scale - self) * (" inverse                                         \
  ")\n"                                                                  \
  "            : grad * ((level > quant_max ? quant_max : quant_min) - " \
  "zero)) *\n"                                                           \
  "           grad_factor"

constexpr PointwiseOp kTensorGradients{
    .name = "fake_quantize_learnable_per_tensor_affine_backward",
    .expression = GRADIENTS("inverse"),
    .inputs = "self grad",
    .scalars = "scale inverse zero_point quant_min quant_max grad_factor",
    .outputs = "of_self of_scale of_zero_point"};

constexpr PointwiseOp kChannelGradients{
    .name = "fake_quantize_learnable_per_channel_affine_backward",
    .expression = GRADIENTS("1.0f / scale"),
    .inputs = "self grad scale zero_point",
    .scalars = "quant_min quant_max grad_factor",
    .outputs = "of_self of_scale of_zero_point"};

#undef GRADIENTS
#undef IS_INSIDE
#undef CLAMPED
#undef LEVEL
#undef LEVEL_OF_SUM

void per_tensor(Tensor& output,
                Tensor& mask,
                const Tensor& input,
                float scale,
                int64_t zero_point,
                int64_t quant_min,
                int64_t quant_max) {
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .add_output(output)
                  .add_output(mask)
                  .add_const_input(input)
                  .build();
  pointwise_with(
      iter, kTensor, scale, 1.0f / scale, zero_point, quant_min, quant_max);
}

void per_tensor_qparams(Tensor& output,
                        Tensor& mask,
                        const Tensor& input,
                        const Tensor& scale,
                        const Tensor& zero_point,
                        const Tensor& enabled,
                        int64_t quant_min,
                        int64_t quant_max) {
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_output(output)
                  .add_output(mask)
                  .add_const_input(input)
                  .add_owned_const_input(scale.reshape({-1})[0])
                  .add_owned_const_input(zero_point.reshape({-1})[0])
                  .add_owned_const_input(enabled.reshape({-1})[0])
                  .build();
  pointwise_with(iter, kTensorQparams, quant_min, quant_max);
}

void per_channel(at::TensorIterator& iter,
                 at::TensorIterator& iter_mask,
                 int64_t quant_min,
                 int64_t quant_max) {
  auto both = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_output(iter.tensor(0))
                  .add_output(iter_mask.tensor(0))
                  .add_const_input(iter.tensor(1))
                  .add_const_input(iter.tensor(2))
                  .add_const_input(iter.tensor(3))
                  .build();
  const bool is_whole = !at::isFloatingType(iter.input_dtype(2));
  pointwise_with(
      both, is_whole ? kChannel : kChannelFloatZeroPoint, quant_min, quant_max);
}

void tensor_gradients(at::TensorIterator& iter,
                      float scale,
                      float inverse,
                      int64_t zero_point,
                      int64_t quant_min,
                      int64_t quant_max,
                      float grad_factor) {
  pointwise_with(iter,
                 kTensorGradients,
                 scale,
                 inverse,
                 zero_point,
                 quant_min,
                 quant_max,
                 grad_factor);
}

void channel_gradients(at::TensorIterator& iter,
                       int64_t quant_min,
                       int64_t quant_max,
                       float grad_factor) {
  pointwise_with(iter, kChannelGradients, quant_min, quant_max, grad_factor);
}

// The least and the largest number, of each channel or of all: all that an
// observer has to see of `self`.
Tensor extremes(const Tensor& self, int64_t axis, bool per_row) {
  const Tensor rows = per_row ? self.transpose(0, axis).flatten(1) : self;
  const auto [least, most] = per_row ? rows.aminmax(1) : rows.aminmax();
  return at::stack({least, most}, -1);
}

// Moves of averages and parameters are torch's own, on the host.
std::tuple<Tensor, Tensor> _fused_moving_avg_obs_fq_helper(
    const Tensor& self,
    const Tensor& observer_on,
    const Tensor& fake_quant_on,
    Tensor& running_min,
    Tensor& running_max,
    Tensor& scale,
    Tensor& zero_point,
    double averaging_const,
    int64_t quant_min,
    int64_t quant_max,
    int64_t ch_axis,
    bool per_row_fake_quant,
    bool symmetric_quant) {
  TORCH_CHECK(ch_axis < self.dim(),
              "Error in fused_moving_avg_obs_fq_helper: ch_axis must be < "
              "self.dim()");
  const bool observes = observer_on.item().toInt() != 0;
  const bool quantizes = fake_quant_on.item().toInt() != 0;
  if (observes || quantizes) {
    const std::array<Tensor*, 4> states{
        &running_min, &running_max, &scale, &zero_point};
    std::array<Tensor, 4> host;
    for (size_t i = 0; i < states.size(); ++i) {
      host[i] = states[i]->cpu();
    }
    at::native::fused_moving_avg_obs_fake_quant_cpu(
        extremes(self, ch_axis, per_row_fake_quant).to(at::kFloat).cpu(),
        at::full({1}, observes, at::kLong),
        at::full({1}, quantizes, at::kLong),
        host[0],
        host[1],
        host[2],
        host[3],
        averaging_const,
        quant_min,
        quant_max,
        0,
        per_row_fake_quant,
        symmetric_quant);
    for (size_t i = 0; i < states.size(); ++i) {
      states[i]->resize_(host[i].sizes());
      states[i]->copy_(host[i]);
    }
  }
  if (!quantizes) {
    return {self.clone(), at::ones_like(self, at::kBool)};
  }
  if (per_row_fake_quant) {
    return at::fake_quantize_per_channel_affine_cachemask(
        self, scale, zero_point, ch_axis, quant_min, quant_max);
  }
  return at::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
      self,
      scale,
      zero_point,
      at::ones({1}, self.options().dtype(at::kLong)),
      quant_min,
      quant_max);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace op = at::_ops;
  native<op::fake_quantize_per_tensor_affine_cachemask,
         &at::native::fake_quantize_per_tensor_affine_cachemask>(m);
  native<op::fake_quantize_per_channel_affine_cachemask,
         &at::native::fake_quantize_per_channel_affine_cachemask>(m);
  native<
      op::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams,
      &at::native::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams>(
      m);
  native<op::_fake_quantize_learnable_per_tensor_affine,
         &at::native::_fake_quantize_learnable_per_tensor_affine>(m);
  native<op::_fake_quantize_learnable_per_tensor_affine_backward,
         &at::native::_fake_quantize_learnable_per_tensor_affine_backward>(m);
  native<op::_fake_quantize_learnable_per_channel_affine,
         &at::native::_fake_quantize_learnable_per_channel_affine>(m);
  native<op::_fake_quantize_learnable_per_channel_affine_backward,
         &at::native::_fake_quantize_learnable_per_channel_affine_backward>(m);
  m.impl("_fused_moving_avg_obs_fq_helper",
         TORCH_FN(_fused_moving_avg_obs_fq_helper));
}

}  // namespace torch_opencl::ops

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_tensor_cachemask_stub,
                              &torch_opencl::ops::per_tensor)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_tensor_cachemask_tensor_qparams_stub,
                              &torch_opencl::ops::per_tensor_qparams)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_per_channel_cachemask_stub,
                              &torch_opencl::ops::per_channel)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_grad_learnable_tensor_stub,
                              &torch_opencl::ops::tensor_gradients)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_grad_learnable_channel_stub,
                              &torch_opencl::ops::channel_gradients)
}  // namespace at::native
