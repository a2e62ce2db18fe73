// Nested tensors of nn.TransformerEncoder. Each component is a view of its row
// of the padded batch, so a layer computes on that batch, with a padding mask.
#include "../../cpp/aten/nested.h"
#include "mask_types.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pad_sequence.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

namespace torch_opencl::ops {
namespace {

using at::Tensor;
using at::native::NestedTensorImpl;

struct Sequences {
  Tensor padded;  // (batch, longest or more, width)
  Tensor sizes;   // (batch, 2) on the CPU: length and width
  bool is_view;   // whether the nested tensor is one of `padded`

  Tensor lengths() const { return sizes.select(1, 0); }
};

// The sequences as views of the contiguous `padded`.
Tensor nested_in(const Tensor& padded, const Tensor& sizes) {
  const Tensor lengths = sizes.select(1, 0);
  const int64_t width = padded.size(2);
  const Tensor strides =
      at::stack({at::full_like(lengths, width), at::ones_like(lengths)}, 1);
  return at::detail::make_tensor<NestedTensorImpl>(
      padded.view(-1),
      sizes,
      strides,
      at::arange(padded.size(0), sizes.options()).mul_(padded.size(1) * width));
}

// Whether these are sequences of vectors of one width.
bool are_sequences(const NestedTensorImpl& nested) {
  const Tensor& sizes = nested.get_nested_sizes();
  return sizes.dim() == 2 && sizes.size(0) > 0 && sizes.size(1) == 2 &&
         sizes[0][1].item<int64_t>() > 0 &&
         sizes.select(1, 1).eq(sizes[0][1]).all().item<bool>();
}

// Whether the components are views of rows of one length.
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
  const Tensor& sizes = nested->get_nested_sizes();
  if (!are_padded(*nested)) {
    return {at::pad_sequence(tensor.unbind(), /*batch_first=*/true),
            sizes,
            /*is_view=*/false};
  }
  const int64_t width = sizes[0][1].item<int64_t>();
  return {
      nested->get_unsafe_storage_as_tensor().view({sizes.size(0), -1, width}),
      sizes,
      /*is_view=*/true};
}

// (batch, positions): a padding mask.
Tensor padding_mask(const Sequences& sequences) {
  const Tensor positions =
      at::arange(sequences.padded.size(1), sequences.sizes.options());
  return positions.ge(sequences.lengths().unsqueeze(1))
      .to(sequences.padded.device());
}

Tensor nested_from_mask(const Tensor& padded,
                        const Tensor& mask,
                        bool mask_check) {
  const Tensor on_host = mask.cpu();  // the only wait
  const bool is_left_aligned =
      at::native::NestedTensor_nested_tensor_from_mask_left_aligned(padded,
                                                                    on_host);
  TORCH_CHECK(!mask_check || is_left_aligned,
              "Mask must be left-aligned without gaps");
  TORCH_CHECK(padded.size(0) > 0, "stack expects a non-empty TensorList");
  const Tensor lengths = on_host.sum(1);
  // What is padded may be NaN, which a weight of 0 would not stop.
  const Tensor kept = padded.masked_fill(
      mask.to(padded.device()).logical_not().unsqueeze(2), 0);
  return nested_in(
      kept.contiguous(),  // copy: viewed by rows
      at::stack({lengths, at::full_like(lengths, padded.size(2))}, 1));
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
  const int64_t longest = sequences.lengths().max().item<int64_t>();
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
      padded.masked_fill(padding_mask(sequences).unsqueeze(2), padding)
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

// Computes the padded batch instead of `src`.
void transformer_encoder_layer(const c10::OperatorHandle& op,
                               torch::jit::Stack* stack) {
  constexpr size_t kArguments = 20;  // the last are mask and mask_type
  c10::IValue* arguments = &(*stack)[stack->size() - kArguments];
  TORCH_CHECK(arguments[kArguments - 2].isNone(),
              "NestedTensor with mask is not supported yet");
  const Tensor src = arguments[0].toTensor();
  TORCH_CHECK(are_sequences(*at::native::get_nested_tensor_impl(src)),
              "_transformer_encoder_layer_fwd: on opencl a nested input has to "
              "be a batch of (length, embedding) with one embedding");
  const Sequences sequences = sequences_of(src);
  arguments[0] = sequences.padded;
  arguments[kArguments - 2] = padding_mask(sequences);
  arguments[kArguments - 1] = kPaddingMask;
  op.callBoxed(stack);
  const Tensor result =
      torch::jit::pop(*stack).toTensor().contiguous();  // copy: viewed by rows
  Tensor nested = nested_in(result, sequences.sizes);
  if (!sequences.is_view) {
    nested = nested.contiguous();  // copy: without gaps, as on the CPU
  }
  torch::jit::push(*stack, nested);
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
  m.impl(
      "_transformer_encoder_layer_fwd",
      torch::CppFunction::makeFromBoxedFunction<&transformer_encoder_layer>());
}

}  // namespace torch_opencl::ops
