// Nested tensors of nn.TransformerEncoder: sequences of a batch, each of which
// lies where it lies in the padded batch. So no element is moved, and a layer
// computes on the padded batch with a mask of the positions behind the ends.
#include "../../cpp/aten/nested.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned_native.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

namespace torch_opencl::ops {
namespace {

using at::Tensor;
using at::native::NestedTensorImpl;

struct Sequences {
  Tensor padded;   // (batch, longest or more, width)
  Tensor lengths;  // (batch), on the CPU
};

// `lengths` sequences of the contiguous `padded`, which they share.
Tensor nested_in(const Tensor& padded, const Tensor& lengths) {
  const int64_t batch = padded.size(0), width = padded.size(2);
  const auto options = lengths.options();
  Tensor sizes = at::empty({batch, 2}, options);
  sizes.select(1, 0).copy_(lengths);
  sizes.select(1, 1).fill_(width);
  Tensor strides = at::empty({batch, 2}, options);
  strides.select(1, 0).fill_(width);
  strides.select(1, 1).fill_(1);
  return at::detail::make_tensor<NestedTensorImpl>(
      padded.view(-1),
      sizes,
      strides,
      at::arange(batch, options).mul_(padded.size(1) * width));
}

// Whether these are sequences of vectors of one width.
bool are_sequences(const NestedTensorImpl& nested) {
  const Tensor& sizes = nested.get_nested_sizes();
  return sizes.dim() == 2 && sizes.size(0) > 0 && sizes.size(1) == 2 &&
         sizes[0][1].item<int64_t>() > 0 &&
         sizes.select(1, 1).eq(sizes[0][1]).all().item<bool>();
}

// Whether they lie in a padded batch, of sequences of one length.
bool are_padded(const NestedTensorImpl& nested) {
  const Tensor& sizes = nested.get_nested_sizes();
  const int64_t batch = sizes.size(0);
  const int64_t width = sizes[0][1].item<int64_t>();
  const int64_t elements = nested.get_unsafe_storage_as_tensor().numel();
  const Tensor& strides = nested.get_nested_strides();
  const Tensor& starts = nested.get_storage_offsets();
  const int64_t pitch = elements / batch;
  return elements % (batch * width) == 0 &&
         strides.select(1, 0).eq(width).all().item<bool>() &&
         strides.select(1, 1).eq(1).all().item<bool>() &&
         starts.equal(at::arange(batch, starts.options()).mul_(pitch)) &&
         sizes.select(1, 0).max().item<int64_t>() * width <= pitch;
}

Sequences sequences_of(const Tensor& tensor) {
  const auto* nested = at::native::get_nested_tensor_impl(tensor);
  const Tensor sizes = nested->get_nested_sizes();
  const int64_t batch = sizes.size(0);
  const int64_t width = sizes[0][1].item<int64_t>();
  Sequences found{{}, sizes.select(1, 0)};
  if (are_padded(*nested)) {
    found.padded =
        nested->get_unsafe_storage_as_tensor().view({batch, -1, width});
    return found;
  }
  const std::vector<Tensor> parts = tensor.unbind();
  const int64_t longest = found.lengths.max().item<int64_t>();
  found.padded = at::zeros({batch, longest, width}, parts[0].options());
  for (int64_t i = 0; i < batch; ++i) {
    found.padded[i].narrow(0, 0, parts[i].size(0)).copy_(parts[i]);
  }
  return found;
}

// The elements of sequences one after the other, as torch.nested_tensor has
// them.
Tensor joined(const Sequences& sequences) {
  const int64_t batch = sequences.padded.size(0);
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t length = sequences.lengths[i].item<int64_t>();
    parts.push_back(sequences.padded[i].narrow(0, 0, length));
  }
  const Tensor lengths = sequences.lengths.unsqueeze(1);
  const Tensor widths = at::empty_like(lengths).fill_(sequences.padded.size(2));
  return at::detail::make_tensor<NestedTensorImpl>(
      at::cat(parts).view(-1), at::cat({lengths, widths}, 1));
}

// (batch, positions): those behind the end of their sequence.
Tensor hidden_positions(const Sequences& sequences) {
  const Tensor positions =
      at::arange(sequences.padded.size(1), sequences.lengths.options());
  return positions.ge(sequences.lengths.unsqueeze(1))
      .to(sequences.padded.device());
}

Tensor nested_from_mask(const Tensor& padded,
                        const Tensor& mask,
                        bool mask_check) {
  const bool is_left_aligned =
      at::native::NestedTensor_nested_tensor_from_mask_left_aligned(padded,
                                                                    mask);
  TORCH_CHECK(!mask_check || is_left_aligned,
              "Mask must be left-aligned without gaps");
  TORCH_CHECK(padded.size(0) > 0, "stack expects a non-empty TensorList");
  return nested_in(padded.clone(at::MemoryFormat::Contiguous),
                   mask.sum(1).cpu());
}

// Of sequences; other nested tensors go to the CPU.
void to_padded_tensor(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 3);
  const Tensor self = arguments[0].toTensor();
  if (!are_sequences(*at::native::get_nested_tensor_impl(self))) {
    aten::nested_fallback(op, stack);
    return;
  }
  const Sequences sequences = sequences_of(self);
  const int64_t longest = sequences.lengths.max().item<int64_t>();
  TORCH_CHECK(longest > 0,
              "to_padded_tensor: at least one constituent tensor should have "
              "non-zero numel");
  const Tensor& padded = sequences.padded;
  std::vector<int64_t> sizes{padded.size(0), longest, padded.size(2)};
  if (!arguments[2].isNone()) {
    const auto wanted = arguments[2].toDimVector();
    TORCH_CHECK(wanted.size() == sizes.size(),
                "Length of output_size does not match NestedTensor dims. "
                "Broadcasting is not supported.");
    for (size_t d = 0; d < sizes.size(); ++d) {
      TORCH_CHECK(wanted[d] >= sizes[d],
                  "Value in output_size is less than NestedTensor padded size. "
                  "Truncation is not supported.");
    }
    sizes.assign(wanted.begin(), wanted.end());
  }
  const double number = arguments[1].toDouble();
  const at::Scalar padding = self.is_floating_point() || self.is_complex()
                                 ? at::Scalar(number)
                                 : at::Scalar(static_cast<int64_t>(number));
  const int64_t kept = std::min(sizes[1], padded.size(1));
  Tensor result =
      padded.masked_fill(hidden_positions(sequences).unsqueeze(2), padding)
          .narrow(1, 0, kept);
  result = at::constant_pad_nd(result,
                               {0,
                                sizes[2] - result.size(2),
                                0,
                                sizes[1] - kept,
                                0,
                                sizes[0] - result.size(0)},
                               padding);
  torch::jit::drop(*stack, 3);
  torch::jit::push(*stack, result);
}

// The arguments of _transformer_encoder_layer_fwd between `src` and `mask`.
template <class... Weights>
Tensor encoder_layer(const Tensor& src, const Weights&... weights) {
  TORCH_CHECK(are_sequences(*at::native::get_nested_tensor_impl(src)),
              "_transformer_encoder_layer_fwd: on opencl a nested input has to "
              "be a batch of (length, embedding) with one embedding");
  const Sequences sequences = sequences_of(src);
  constexpr int64_t kPaddingMask = 1;
  const Tensor result =
      at::native::transformer_encoder_layer_forward(sequences.padded,
                                                    weights...,
                                                    hidden_positions(sequences),
                                                    kPaddingMask)
          .contiguous();  // copy: none but of other strides, as views need
  return at::native::get_nested_tensor_impl(src)->is_contiguous()
             ? joined({result, sequences.lengths})
             : nested_in(result, sequences.lengths);
}

Tensor transformer_encoder_layer(const Tensor& src,
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
  TORCH_CHECK(!mask.has_value() || !mask->defined(),
              "NestedTensor with mask is not supported yet");
  return encoder_layer(src,
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
                       ffn_bias_2);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl(
      "_nested_tensor_from_mask_left_aligned",
      TORCH_FN(at::native::NestedTensor_nested_tensor_from_mask_left_aligned));
  m.impl("_nested_tensor_from_mask", TORCH_FN(nested_from_mask));
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("to_padded_tensor",
         torch::CppFunction::makeFromBoxedFunction<&to_padded_tensor>());
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(transformer_encoder_layer));
}

}  // namespace torch_opencl::ops
