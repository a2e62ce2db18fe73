// Inference of nn.MultiheadAttention and nn.TransformerEncoder in single ops.
#include "../../cpp/aten/no_autocast.h"
#include "../../cpp/aten/structured.h"
#include "../common/optional_tensor.h"
#include "mask_types.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_addmm_activation_meta.h>
#include <ATen/ops/_addmm_activation_ops.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <optional>

namespace torch_opencl::ops {
namespace {

using at::Tensor;

// The fast paths ask for autocast of CUDA only. Under ours they compute in the
// dtype of the weights, and return what the slow path returns: results of
// linear layers in autocast's dtype, of softmax and normalisations in float32.
std::optional<at::ScalarType> autocast_dtype() {
  if (!at::autocast::is_autocast_enabled(at::kPrivateUse1)) {
    return std::nullopt;
  }
  return at::autocast::get_autocast_dtype(at::kPrivateUse1);
}

at::ScalarType dtype_after_cast(const Tensor& tensor, at::ScalarType dtype) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : dtype;
}

Tensor additive_mask(const Tensor& mask,
                     std::optional<int64_t> mask_type,
                     const Tensor& like) {
  // Integers hide, as bools do.
  const bool hides =
      at::isIntegralType(mask.scalar_type(), /*includeBool=*/true);
  const Tensor bias =
      hides ? at::zeros(mask.sizes(), like.options())
                  .masked_fill_(mask.to(at::kBool),
                                -std::numeric_limits<double>::infinity())
            : mask.to(like.scalar_type());
  return mask_type == kPaddingMask
             ? bias.view({mask.size(0), 1, 1, mask.size(1)})
             : bias;
}

// (batch, length, heads * dimension) to (batch, heads, length, dimension).
Tensor split_heads(const Tensor& joined, int64_t heads) {
  return joined.unflatten(2, {heads, joined.size(2) / heads}).transpose(1, 2);
}

// Heads of query, key and value, by one product where they are one tensor.
std::vector<Tensor> projected_heads(const Tensor& query,
                                    const Tensor& key,
                                    const Tensor& value,
                                    const Tensor& qkv_weight,
                                    const Tensor& qkv_bias,
                                    int64_t heads) {
  std::vector<Tensor> projected;
  if (query.is_same(key) && key.is_same(value)) {
    projected = at::linear(query, qkv_weight, qkv_bias).chunk(3, 2);
  } else {
    const std::vector<Tensor> weights = qkv_weight.chunk(3, 0);
    const std::vector<Tensor> biases = qkv_bias.chunk(3, 0);
    projected = {at::linear(query, weights[0], biases[0]),
                 at::linear(key, weights[1], biases[1]),
                 at::linear(value, weights[2], biases[2])};
  }
  for (Tensor& tensor : projected) {
    tensor = split_heads(tensor, heads);
  }
  return projected;
}

std::tuple<Tensor, Tensor> _native_multi_head_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    int64_t embed_dim,
    int64_t num_head,
    const Tensor& qkv_weight,
    const Tensor& qkv_bias,
    const Tensor& proj_weight,
    const Tensor& proj_bias,
    const std::optional<Tensor>& mask,
    bool need_weights,
    bool average_attn_weights,
    std::optional<int64_t> mask_type) {
  TORCH_CHECK(
      query.dim() == 3, "expected 3-D `query`, got ", query.dim(), "-D tensor");
  TORCH_CHECK(query.size(2) == embed_dim && embed_dim % num_head == 0,
              "passed-in embed_dim ",
              embed_dim,
              " didn't match last dim of query ",
              query.size(2),
              " or is not a multiple of num_head ",
              num_head);
  const std::optional<at::ScalarType> cast = autocast_dtype();
  const aten::NoAutocast guard;
  const std::vector<Tensor> projected =
      projected_heads(query, key, value, qkv_weight, qkv_bias, num_head);
  std::optional<Tensor> bias;
  if (is_given(mask)) {
    bias = additive_mask(*mask, mask_type, query);
  }
  Tensor attended;
  Tensor weights;
  if (need_weights) {
    const double scale =
        1 / std::sqrt(static_cast<double>(embed_dim / num_head));
    // Scaled ahead of the product, which float16 may not hold.
    Tensor scores = at::matmul(projected[0] * scale, projected[1].mT());
    if (bias.has_value()) {
      scores.add_(*bias);
    }
    weights = at::_safe_softmax(scores, 3);
    attended = at::matmul(weights, projected[2]);
    if (average_attn_weights) {
      weights = weights.mean(1);
    }
  } else {
    attended = at::scaled_dot_product_attention(
        projected[0], projected[1], projected[2], bias);
  }
  Tensor out =
      at::linear(attended.transpose(1, 2).flatten(2), proj_weight, proj_bias);
  if (cast.has_value()) {
    out = out.to(dtype_after_cast(out, *cast));
    if (weights.defined()) {
      weights = weights.to(dtype_after_cast(weights, at::kFloat));
    }
  }
  return {out, weights};
}

Tensor _transformer_encoder_layer_fwd(const Tensor& src,
                                      int64_t embed_dim,
                                      int64_t num_heads,
                                      const Tensor& qkv_weight,
                                      const Tensor& qkv_bias,
                                      const Tensor& proj_weight,
                                      const Tensor& proj_bias,
                                      bool use_gelu,
                                      bool norm_first,
                                      double eps,
                                      const Tensor& norm_weight_1,
                                      const Tensor& norm_bias_1,
                                      const Tensor& norm_weight_2,
                                      const Tensor& norm_bias_2,
                                      const Tensor& ffn_weight_1,
                                      const Tensor& ffn_bias_1,
                                      const Tensor& ffn_weight_2,
                                      const Tensor& ffn_bias_2,
                                      const std::optional<Tensor>& mask,
                                      std::optional<int64_t> mask_type) {
  const std::optional<at::ScalarType> cast = autocast_dtype();
  const aten::NoAutocast guard;
  const Tensor result = at::native::transformer_encoder_layer_forward(
      cast.has_value() ? src.to(qkv_weight.scalar_type()) : src,
      embed_dim,
      num_heads,
      qkv_weight,
      qkv_bias,
      proj_weight,
      proj_bias,
      use_gelu,
      norm_first,
      eps,
      norm_weight_1,
      norm_bias_1,
      norm_weight_2,
      norm_bias_2,
      ffn_weight_1,
      ffn_bias_1,
      ffn_weight_2,
      ffn_bias_2,
      mask,
      mask_type);
  if (!cast.has_value()) {
    return result;
  }
  // The residual stream has the dtype of sums, if no normalisation is last.
  return result.to(norm_first ? at::promote_types(src.scalar_type(),
                                                  dtype_after_cast(src, *cast))
                              : dtype_after_cast(src, at::kFloat));
}

struct _addmm_activation_out : at::meta::structured__addmm_activation {
  void impl(const Tensor& self,
            const Tensor& mat1,
            const Tensor& mat2,
            const at::Scalar& beta,
            const at::Scalar& alpha,
            bool use_gelu,
            const Tensor& out) {
    Tensor result = out;
    at::addmm_out(result, self, mat1, mat2, beta, alpha);
    if (use_gelu) {
      at::gelu_(result);
    } else {
      at::relu_(result);
    }
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  aten::structured<_addmm_activation_out, at::_ops::_addmm_activation_out>(m);
  m.impl("_native_multi_head_attention", &_native_multi_head_attention);
  m.impl("_transformer_encoder_layer_fwd",
         TORCH_FN(_transformer_encoder_layer_fwd));
}

}  // namespace torch_opencl::ops
