// scaled_dot_product_attention's fused form and its gradients, and the choice
// between it and PyTorch's composition of matmul and softmax.
#include "attention.h"

#include "../../cpp/device/generator.h"
#include "../common/int_size.h"
#include "kernel_sources.h"

#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_permuted.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

bool is_supported_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
}

bool has_forward_grad(const sdp::sdp_params& p) {
  const auto has = [](const Tensor& tensor) {
    return tensor._fw_grad(/*level=*/0).defined();
  };
  return has(p.query) || has(p.key) || has(p.value) ||
         (p.attn_mask.has_value() && has(*p.attn_mask));
}

// Of tensors with symbolic sizes, too: torch.compile asks for the choice.
bool can_fuse(const sdp::sdp_params& p) {
  // What a gradient of the mask needs is what the fused form avoids: scores.
  // A checkpoint's first run is without gradients and has to draw the dropout
  // of the second.
  const bool needs_mask_grad = p.attn_mask.has_value() &&
                               p.attn_mask->requires_grad() &&
                               (at::GradMode::is_enabled() || p.dropout > 0);
  return !needs_mask_grad && !has_forward_grad(p) &&
         sdp::check_nested_tensor(p, false) &&
         sdp::check_tensor_shapes(p, false) &&
         is_supported_dtype(p.query.scalar_type()) &&
         sdp::check_batch_size_and_num_heads_dense<true>(p, false) &&
         sdp::check_nonzero_sequence_lengths_dense(p, false) &&
         p.query.sym_numel() != 0 && p.value.sym_numel() != 0 &&
         p.query.sym_size(3) == p.key.sym_size(3) &&
         p.key.sym_size(2) == p.value.sym_size(2) &&
         p.query.sym_size(3) <= kMaxHeadDim &&
         p.value.sym_size(3) <= kMaxHeadDim &&
         !(p.is_causal && p.attn_mask.has_value());
}

int64_t fused_sdp_choice(const Tensor& query,
                         const Tensor& key,
                         const Tensor& value,
                         const std::optional<Tensor>& attn_mask,
                         double dropout_p,
                         bool is_causal,
                         std::optional<double>,
                         bool enable_gqa) {
  const at::Context& context = at::globalContext();
  // The fused form is a flash attention: programs that ask for one by any of
  // its names get it.
  const bool is_enabled = context.userEnabledOverrideableSDP() ||
                          context.userEnabledFlashSDP() ||
                          context.userEnabledMemEfficientSDP();
  sdp::SDPBackend choice = sdp::SDPBackend::error;
  if (is_enabled &&
      can_fuse(
          {query, key, value, attn_mask, dropout_p, is_causal, enable_gqa})) {
    choice = sdp::SDPBackend::overrideable;
  } else if (context.userEnabledMathSDP()) {
    choice = sdp::SDPBackend::math;
  }
  return static_cast<int64_t>(choice);
}

AttentionStrides strides_of(const Tensor& tensor) {
  return {
      tensor.stride(0), tensor.stride(1), tensor.stride(2), tensor.stride(3)};
}

void check_arguments(const Tensor& query,
                     const Tensor& key,
                     const Tensor& value,
                     double dropout_p) {
  TORCH_CHECK(
      is_supported_dtype(query.scalar_type()) &&
          key.scalar_type() == query.scalar_type() &&
          value.scalar_type() == query.scalar_type(),
      "_scaled_dot_product_fused_attention_overrideable: expected query, key "
      "and value of one dtype out of float32, float16 and bfloat16, but got ",
      query.scalar_type(),
      ", ",
      key.scalar_type(),
      " and ",
      value.scalar_type());
  const bool has_four = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  TORCH_CHECK(
      has_four && key.size(0) == query.size(0) &&
          value.size(0) == query.size(0) && value.size(1) == key.size(1) &&
          key.size(1) > 0 && query.size(1) % key.size(1) == 0 &&
          query.size(3) > 0 && key.size(2) == value.size(2) &&
          key.size(3) == query.size(3) &&
          std::max(query.size(3), value.size(3)) <= kMaxHeadDim,
      "_scaled_dot_product_fused_attention_overrideable: expected query, key "
      "and value of (batch, heads, length, head dimension), head dimensions of "
      "at most ",
      kMaxHeadDim,
      ", but got ",
      query.sizes(),
      ", ",
      key.sizes(),
      " and ",
      value.sizes());
  TORCH_CHECK(dropout_p >= 0 && dropout_p <= 1,
              "dropout probability has to be between 0 and 1, but got ",
              dropout_p);
}

Attention describe(const Tensor& query,
                   const Tensor& key,
                   const Tensor& value,
                   const Tensor& attn_bias,
                   double dropout_p,
                   bool is_causal,
                   std::optional<double> scale) {
  check_arguments(query, key, value, dropout_p);
  Attention attention{
      {}, query.size(0), query, key, value, {}, is_causal, dropout_p > 0};
  AttentionShape& shape = attention.shape;
  shape.query = strides_of(query);
  shape.key = strides_of(key);
  shape.value = strides_of(value);
  constexpr auto kName = "scaled_dot_product_attention";
  shape.heads = int_size(kName, query.size(1));
  shape.key_heads = int_size(kName, key.size(1));
  shape.queries = int_size(kName, query.size(2));
  shape.keys = int_size(kName, key.size(2));
  shape.query_dim = query.size(3);
  shape.value_dim = value.size(3);
  shape.scale =
      scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  // Sums of what is all dropped are 0, and 0 * infinity would be NaN.
  shape.keep_scale = dropout_p == 1 ? 0 : 1 / (1 - dropout_p);
  shape.threshold = std::ceil(std::ldexp(dropout_p, 24));
  if (attn_bias.defined()) {
    attention.mask = attn_bias.expand(
        {query.size(0), query.size(1), query.size(2), key.size(2)});
    shape.mask = strides_of(attention.mask);
  }
  return attention;
}

// No kernel reads rows of nothing: the result, if it has elements, is zero.
bool adds_nothing(const Attention& attention) {
  return attention.query.numel() == 0 || attention.value.numel() == 0;
}

// In the query's order, which torch.compile relies on: where its heads lie side
// by side, joining them again is a view.
Tensor empty_output(const Tensor& query, const Tensor& value) {
  if (query.size(3) == value.size(3)) {
    return at::empty_like(query);
  }
  std::array<int64_t, 4> order = {0, 1, 2, 3};
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return query.stride(a) > query.stride(b);
  });
  std::vector<int64_t> sizes = query.sizes().vec();
  sizes[3] = value.size(3);
  return at::empty_permuted(sizes, order, query.options());
}

using ForwardResult = std::tuple<Tensor,
                                 Tensor,
                                 Tensor,
                                 Tensor,
                                 c10::SymInt,
                                 c10::SymInt,
                                 Tensor,
                                 Tensor,
                                 Tensor>;

ForwardResult _scaled_dot_product_fused_attention_overrideable(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>& attn_bias,
    double dropout_p,
    bool is_causal,
    bool return_debug_mask,
    std::optional<double> scale) {
  TORCH_CHECK(!return_debug_mask,
              "_scaled_dot_product_fused_attention_overrideable: "
              "return_debug_mask is not supported");
  Attention attention = describe(query,
                                 key,
                                 value,
                                 attn_bias.value_or(Tensor()),
                                 dropout_p,
                                 is_causal,
                                 scale);
  AttentionShape& shape = attention.shape;
  if (attention.has_dropout) {
    const runtime::RandomArgument random =
        device::reserve_philox(std::nullopt, query.device(), 4);
    TORCH_CHECK_NOT_IMPLEMENTED(
        !random.is_captured(),
        "opencl: a graph captures no dropout of scaled_dot_product_attention: "
        "each replay would have the same");
    shape.seed = random.seed;
    shape.offset = random.calls;
  }
  const Tensor out = empty_output(query, value);
  const Tensor logsumexp =
      at::empty({query.size(0), query.size(1), query.size(2)},
                query.options().dtype(at::kFloat));
  shape.out = strides_of(out);
  if (adds_nothing(attention)) {
    out.zero_();
    logsumexp.fill_(INFINITY);  // exp(score - inf) is 0: what backward needs
  } else {
    attention_forward(attention, out, logsumexp);
  }
  // On the CPU: backward needs their values on the host.
  const auto state_tensor = [](uint64_t value) {
    return at::scalar_tensor(static_cast<int64_t>(value),
                             at::TensorOptions().dtype(at::kLong));
  };
  return {out,
          logsumexp,
          Tensor(),
          Tensor(),
          query.size(2),
          key.size(2),
          state_tensor(shape.seed),
          state_tensor(shape.offset),
          Tensor()};
}

// Writes the gradients of query, key and value; undefined ones are left out.
void write_gradients(Attention attention,
                     const Tensor& grad_out,
                     const Tensor& out,
                     const Tensor& logsumexp,
                     const std::array<Tensor, 3>& grads) {
  const auto strides = [](const Tensor& grad) {
    return grad.defined() ? strides_of(grad) : AttentionStrides();
  };
  AttentionShape& shape = attention.shape;
  shape.grad_query = strides(grads[0]);
  shape.grad_key = strides(grads[1]);
  shape.grad_value = strides(grads[2]);
  const AttentionGradients gradients{grad_out,
                                     logsumexp,
                                     at::empty_like(logsumexp),
                                     grads[0],
                                     grads[1],
                                     grads[2]};
  shape.out = strides_of(grad_out);
  launch(attention.query,
         sources::attention_delta,
         "attention_delta",
         {{"DTYPE", dtype_of(attention.query)}},
         range(shape.queries, shape.heads, attention.batch, 64, 1, 1),
         shape,
         strides_of(out),
         arg_in(out),
         arg_in(grad_out),
         arg(gradients.delta));
  attention_backward(attention, gradients);
}

std::tuple<Tensor, Tensor, Tensor, Tensor>
_scaled_dot_product_fused_attention_overrideable_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& attn_bias,
    std::array<bool, 4> grad_input_mask,
    const Tensor& out,
    const Tensor& logsumexp,
    const Tensor&,
    const Tensor&,
    c10::SymInt,
    c10::SymInt,
    double dropout_p,
    bool is_causal,
    const Tensor& philox_seed,
    const Tensor& philox_offset,
    std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !grad_input_mask[3],
      "_scaled_dot_product_fused_attention_overrideable_backward: attn_bias "
      "has no gradient here; use SDPBackend.MATH for a mask that requires "
      "grad");
  Attention attention =
      describe(query, key, value, attn_bias, dropout_p, is_causal, scale);
  if (attention.has_dropout) {
    attention.shape.seed = philox_seed.item<int64_t>();
    attention.shape.offset = philox_offset.item<int64_t>();
  }
  const auto like = [](const Tensor& input, bool is_wanted) {
    return is_wanted ? at::empty_like(input) : Tensor();
  };
  // One kernel computes both gradients of keys and values.
  const bool has_keys = grad_input_mask[1] || grad_input_mask[2];
  const std::array<Tensor, 3> grads = {like(query, grad_input_mask[0]),
                                       like(key, has_keys),
                                       like(value, has_keys)};
  if (adds_nothing(attention)) {
    for (const Tensor& grad : grads) {
      if (grad.defined()) {
        grad.zero_();
      }
    }
  } else {
    write_gradients(std::move(attention), grad_out, out, logsumexp, grads);
  }
  return {grads[0],
          grad_input_mask[1] ? grads[1] : Tensor(),
          grad_input_mask[2] ? grads[2] : Tensor(),
          Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", &fused_sdp_choice);
  m.impl("_scaled_dot_product_fused_attention_overrideable",
         &_scaled_dot_product_fused_attention_overrideable);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward",
         &_scaled_dot_product_fused_attention_overrideable_backward);
}

}  // namespace torch_opencl::ops

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub,
                              &torch_opencl::ops::fused_sdp_choice)
}  // namespace at::native
