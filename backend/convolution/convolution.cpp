// convolution_overrideable and its backward: every convolution of the device,
// of one to three dimensions, transposed, grouped, dilated.
#include "convolution.h"

#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/no_autocast.h"
#include "../common/int_size.h"
#include "../common/optional_tensor.h"

#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

bool supports_all(const ConvolutionProblem&, const runtime::DeviceInfo&) {
  return true;
}

constexpr ConvolutionSolver kForwardSolvers[] = {
    {"depthwise", supports_depthwise, prefers_depthwise, depthwise_forward},
    {"direct_grouped",
     supports_direct_grouped,
     prefers_direct_grouped,
     direct_grouped_forward},
    {"winograd", supports_winograd, prefers_winograd, winograd_forward},
    {"implicit", supports_implicit, nullptr, implicit_forward},
    {"conv1x1", supports_conv1x1, nullptr, conv1x1_forward},
    {"direct", supports_direct, prefers_direct, direct_forward},
    {"im2col", supports_all, nullptr, im2col_forward},
};
constexpr ConvolutionSolver kBackwardDataSolvers[] = {
    {"depthwise",
     supports_depthwise,
     prefers_depthwise_data,
     depthwise_backward_data},
    {"implicit",
     supports_implicit,
     prefers_implicit_data,
     implicit_backward_data},
    {"conv1x1", supports_conv1x1, nullptr, conv1x1_backward_data},
    {"rotated_filter",
     supports_rotated_filter,
     nullptr,
     rotated_filter_backward_data},
    {"direct_grouped",
     supports_direct_grouped_data,
     prefers_direct_grouped_data,
     direct_grouped_backward_data},
    {"direct", supports_direct_data, prefers_direct_data, direct_backward_data},
    {"im2col", supports_all, nullptr, im2col_backward_data},
};
constexpr ConvolutionSolver kBackwardWeightSolvers[] = {
    {"depthwise",
     supports_depthwise,
     prefers_depthwise_weight,
     depthwise_backward_weight},
    {"direct_grouped",
     supports_direct_grouped_weight,
     prefers_direct_grouped_weight,
     direct_grouped_backward_weight},
    {"winograd", supports_winograd, prefers_winograd, winograd_backward_weight},
    {"implicit", supports_implicit, nullptr, implicit_backward_weight},
    {"direct",
     supports_direct_weight,
     prefers_direct_weight,
     direct_backward_weight},
    {"conv1x1", supports_conv1x1, nullptr, conv1x1_backward_weight},
    {"im2col", supports_all, nullptr, im2col_backward_weight},
};

constexpr ConvolutionFamily kForward{"convolution", kForwardSolvers};
constexpr ConvolutionFamily kBackwardData{"convolution, data gradient",
                                          kBackwardDataSolvers};
constexpr ConvolutionFamily kBackwardWeight{"convolution, weight gradient",
                                            kBackwardWeightSolvers};

// The leading spatial dimensions that a tensor lacks, with size one.
Tensor to_5d(Tensor tensor) {
  while (tensor.dim() < 5) {
    tensor = tensor.unsqueeze(2);
  }
  return tensor;
}

Spatial spatial(IntArrayRef values, int64_t missing) {
  Spatial result{missing, missing, missing};
  std::copy(values.begin(), values.end(), result.end() - values.size());
  return result;
}

struct ConvolutionGeometry {
  IntArrayRef stride;
  IntArrayRef padding;
  IntArrayRef dilation;
  int64_t groups;
};

// `input` and `output` in the roles of a plain convolution. A stride that leads
// past the padded image, where there is one output position, is cut to its
// size: that fits ints.
ConvolutionProblem problem_of(const ConvolutionArguments& a,
                              const ConvolutionGeometry& geometry) {
  const Spatial input = spatial(a.input.sizes().slice(2), 1);
  const Spatial padding = spatial(geometry.padding, 0);
  Spatial stride = spatial(geometry.stride, 1);
  for (size_t d = 0; d < stride.size(); ++d) {
    stride[d] = std::min(stride[d], input[d] + 2 * padding[d]);
  }
  return {a.input.size(0),
          a.input.size(1),
          a.output.size(1),
          geometry.groups,
          input,
          spatial(a.output.sizes().slice(2), 1),
          spatial(a.weight.sizes().slice(2), 1),
          stride,
          padding,
          spatial(geometry.dilation, 1),
          a.input.scalar_type(),
          needs_long_index({a.input, a.output}),
          a.input.stride(1) == 1 && a.input.size(1) > 1};
}

// A parameter whose elements the kernels' ints reach.
Tensor near(const Tensor& param) {
  if (param.defined()) {
    int_size("convolution", param.numel());
  }
  return !param.defined() || fits_int32(extent_of(param))
             ? param
             : param.contiguous();  // copy: strides are far apart
}

void solve(const ConvolutionFamily& family,
           const Tensor& input,
           const Tensor& weight,
           const Tensor& bias,
           const Tensor& output,
           const ConvolutionGeometry& geometry) {
  check_pixels("convolution", input);
  check_pixels("convolution", output);
  const ConvolutionArguments arguments{
      to_5d(input), to_5d(near(weight)), near(bias), to_5d(output)};
  aten::solve(family, problem_of(arguments, geometry), arguments, input);
}

// channels_last where the input or the weight asks for it.
at::MemoryFormat memory_format_of(const Tensor& input, const Tensor& weight) {
  for (const Tensor* tensor : {&input, &weight}) {
    const at::MemoryFormat format = tensor->suggest_memory_format();
    if (format != at::MemoryFormat::Contiguous) {
      return format;
    }
  }
  return at::MemoryFormat::Contiguous;
}

// `other` is named `name`, and may be undefined.
void check_dtypes(const Tensor& input,
                  const Tensor& weight,
                  const char* name,
                  const Tensor& other) {
  const auto check = [&input](const char* name, const Tensor& tensor) {
    TORCH_CHECK(
        !tensor.defined() || tensor.scalar_type() == input.scalar_type(),
        "Input type (",
        input.toString(),
        ") and ",
        name,
        " type (",
        tensor.toString(),
        ") should be the same");
  };
  check("weight", weight);
  check(name, other);
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(input.scalar_type()),
                              "\"convolution\" not implemented for '",
                              input.scalar_type(),
                              "'");
}

void check_positive(const char* what, IntArrayRef values) {
  TORCH_CHECK(std::all_of(values.begin(),
                          values.end(),
                          [](int64_t value) { return value > 0; }),
              what,
              " should be greater than zero, but got ",
              values);
}

// A transposed convolution's; PyTorch checks those of others.
void check_output_size(const Tensor& input, IntArrayRef sizes) {
  const IntArrayRef given = input.sizes().slice(2), found = sizes.slice(2);
  TORCH_CHECK(
      std::all_of(found.begin(), found.end(), [](int64_t n) { return n > 0; }),
      "Given input size per channel: (",
      c10::Join(" x ", given),
      "). Calculated output size per channel: (",
      c10::Join(" x ", found),
      "). Output size is too small");
}

// With more, elements of the output would come from none of the input.
void check_output_padding(IntArrayRef output_padding,
                          IntArrayRef stride,
                          IntArrayRef dilation) {
  bool fits = true;
  for (size_t d = 0; d < output_padding.size(); ++d) {
    fits &= output_padding[d] < std::max(stride[d], dilation[d]);
  }
  if (fits) {
    return;
  }
  // As PyTorch has it, which makes images of one row of what has one dimension.
  const auto named = [](const char* what, IntArrayRef values, int of_a_row) {
    constexpr std::array<const char*, 3> kNames = {"depth", "height", "width"};
    std::vector<int64_t> all = values.vec();
    if (all.size() == 1) {
      all.insert(all.begin(), of_a_row);
    }
    std::string text;
    for (size_t d = 0; d < all.size(); ++d) {
      text += std::string(" ") + what + "_" + kNames[3 - all.size() + d] +
              ": " + std::to_string(all[d]);
    }
    return text;
  };
  TORCH_CHECK(
      false,
      "output padding must be smaller than either stride or dilation, but got",
      named("output_padding", output_padding, 0),
      named("stride", stride, 1),
      named("dilation", dilation, 1));
}

std::vector<int64_t> output_sizes(const Tensor& input,
                                  const Tensor& weight,
                                  const ConvolutionGeometry& geometry,
                                  bool transposed,
                                  IntArrayRef output_padding) {
  const auto& [stride, padding, dilation, groups] = geometry;
  check_positive("dilation", dilation);
  check_positive("kernel size", weight.sizes().slice(2));
  if (!transposed) {
    return at::native::conv_output_size(
        input.sizes(), weight.sizes(), padding, stride, dilation);
  }
  TORCH_CHECK(weight.numel() > 0,
              "non-empty weight tensor expected, but got: ",
              weight.sizes());
  check_output_padding(output_padding, stride, dilation);
  std::vector<int64_t> sizes = at::native::conv_input_size(input.sizes(),
                                                           weight.sizes(),
                                                           padding,
                                                           output_padding,
                                                           stride,
                                                           dilation,
                                                           groups);
  check_output_size(input, sizes);
  return sizes;
}

Tensor convolution(const Tensor& input,
                   const Tensor& weight,
                   const std::optional<Tensor>& bias,
                   IntArrayRef stride,
                   IntArrayRef padding,
                   IntArrayRef dilation,
                   bool transposed,
                   IntArrayRef output_padding,
                   int64_t groups) {
  if (!is_supported(input)) {  // the CPU has no kernel of the overrideable op
    return at::native::call_fallback_fn<&cpu_fallback, at::_ops::convolution>::
        call(input,
             weight,
             bias,
             stride,
             padding,
             dilation,
             transposed,
             output_padding,
             groups);
  }
  const Tensor& bias_or_none = value_or_undefined(bias);
  check_dtypes(input, weight, "bias", bias_or_none);
  const ConvolutionGeometry geometry{stride, padding, dilation, groups};
  Tensor output = at::empty(
      output_sizes(input, weight, geometry, transposed, output_padding),
      input.options().memory_format(memory_format_of(input, weight)));
  if (output.numel() == 0) {
    return output;
  }
  if (!transposed) {
    solve(kForward, input, weight, bias_or_none, output, geometry);
    return output;
  }
  solve(kBackwardData, output, weight, {}, input, geometry);
  if (bias_or_none.defined()) {
    std::vector<int64_t> shape(output.dim(), 1);
    shape[1] = -1;
    output.add_(bias_or_none.reshape(shape));
  }
  return output;
}

Tensor weight_gradient(const Tensor& grad_output,
                       const Tensor& input,
                       const Tensor& weight,
                       bool transposed,
                       const ConvolutionGeometry& geometry) {
  Tensor grad_weight =
      at::empty(weight.sizes(),
                weight.options().memory_format(weight.suggest_memory_format()));
  if (grad_output.numel() == 0) {
    grad_weight.zero_();
  } else if (transposed) {
    solve(kBackwardWeight, grad_output, grad_weight, {}, input, geometry);
  } else {
    solve(kBackwardWeight, input, grad_weight, {}, grad_output, geometry);
  }
  return grad_weight;
}

Tensor bias_gradient(const Tensor& grad_output) {
  std::vector<int64_t> dims = {0};
  for (int64_t d = 2; d < grad_output.dim(); ++d) {
    dims.push_back(d);
  }
  const aten::NoAutocast guard;
  return at::sum(grad_output, dims);
}

Tensor input_gradient(const Tensor& grad_output,
                      const Tensor& input,
                      const Tensor& weight,
                      bool transposed,
                      const ConvolutionGeometry& geometry) {
  Tensor grad_input =
      at::empty(input.sizes(),
                input.options().memory_format(memory_format_of(input, weight)));
  if (grad_output.numel() == 0) {
    grad_input.zero_();
  } else if (grad_input.numel() > 0) {
    if (transposed) {
      solve(kForward, grad_output, weight, {}, grad_input, geometry);
    } else {
      solve(kBackwardData, grad_input, weight, {}, grad_output, geometry);
    }
  }
  return grad_input;
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    std::array<bool, 3> output_mask) {
  if (!is_supported(input)) {
    const std::array<int64_t, 1> bias_sizes{grad_output.size(1)};
    return at::native::
        call_fallback_fn<&cpu_fallback, at::_ops::convolution_backward>::call(
            grad_output,
            input,
            weight,
            at::OptionalIntArrayRef(bias_sizes),
            stride,
            padding,
            dilation,
            transposed,
            output_padding,
            groups,
            output_mask);
  }
  check_dtypes(input, weight, "grad_output", grad_output);
  const ConvolutionGeometry geometry{stride, padding, dilation, groups};
  const std::vector<int64_t> sizes =
      output_sizes(input, weight, geometry, transposed, output_padding);
  TORCH_CHECK(grad_output.sizes() == IntArrayRef(sizes),
              "convolution_backward: expected grad_output of shape ",
              IntArrayRef(sizes),
              ", but got ",
              grad_output.sizes());
  Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[1]) {
    grad_weight =
        weight_gradient(grad_output, input, weight, transposed, geometry);
  }
  if (output_mask[2]) {
    grad_bias = bias_gradient(grad_output);
  }
  // Last: the next pointwise gradient may join it.
  if (output_mask[0]) {
    grad_input =
        input_gradient(grad_output, input, weight, transposed, geometry);
  }
  return {grad_input, grad_weight, grad_bias};
}

}  // namespace

Tensor with_pixel_stride(const Tensor& t) {
  const auto is_stride = [&t](int64_t stride) {
    return (t.size(3) == 1 || t.stride(3) == t.size(4) * stride) &&
           (t.size(2) == 1 || t.stride(2) == t.size(3) * t.size(4) * stride);
  };
  if (is_stride(t.stride(4))) {
    return t;
  }
  // The stride over one column may be any number, in contiguous tensors, too.
  const int64_t rows_apart = t.stride(t.size(3) > 1 ? 3 : 2);
  if (t.size(4) == 1 && is_stride(rows_apart)) {
    std::vector<int64_t> strides = t.strides().vec();
    strides[4] = rows_apart;
    return t.as_strided(t.sizes(), strides);
  }
  return t.contiguous();  // copy: packing walks positions at one stride
}

Addend bias_of(const ConvolutionArguments& a, int64_t rows) {
  if (!a.bias.defined()) {
    return {};
  }
  const int64_t stride = a.bias.stride(0);
  return {arg(a.bias), stride, 0, rows * stride, 1, 1};
}

const ConvolutionFamily& forward_family() {
  return kForward;
}

std::string ConvolutionProblem::text() const {
  const auto sizes = [](const Spatial& s) {
    return c10::str(s[0], "x", s[1], "x", s[2]);
  };
  return c10::str(images,
                  " images of ",
                  sizes(input),
                  ", ",
                  channels,
                  " -> ",
                  out_channels,
                  " channels in ",
                  groups,
                  " groups, kernel ",
                  sizes(kernel),
                  ", output ",
                  sizes(output),
                  ", stride ",
                  sizes(stride),
                  ", padding ",
                  sizes(padding),
                  ", dilation ",
                  sizes(dilation),
                  ", ",
                  c10::toString(dtype),
                  is_channels_last ? ", channels last" : "");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace torch_opencl::ops
