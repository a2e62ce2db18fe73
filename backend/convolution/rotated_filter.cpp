// The data gradient of a convolution is a convolution of the output's gradient:
// its weights have their filter elements reversed and their channels swapped.
// Strides make it one for each remainder of the input's positions, which meet
// only every stride-th filter element, or none.
#include "convolution.h"

#include "../../cpp/aten/launch.h"

#include <algorithm>

namespace torch_opencl::ops {

using at::Tensor;

namespace {

// (O, C / g, filter elements) to (C, O / g, filter elements).
Tensor swap_channels(const ConvolutionProblem& p, const Tensor& weight) {
  if (p.groups == 1) {
    return weight.transpose(0, 1);
  }
  std::vector<int64_t> grouped = weight.sizes().vec();
  grouped[0] /= p.groups;
  grouped.insert(grouped.begin(), p.groups);
  std::vector<int64_t> sizes = weight.sizes().vec();
  std::swap(sizes[0], sizes[1]);
  sizes[0] *= p.groups;
  sizes[1] /= p.groups;
  return weight.reshape(grouped).transpose(1, 2).reshape(sizes);
}

// The positions that leave one remainder by the stride, and the first filter
// element that they meet.
struct Remainder {
  ConvolutionProblem forward;
  Spatial position;
  Spatial element;
};

// Of those that meet an element.
int64_t remainders_of(const ConvolutionProblem& p) {
  int64_t count = 1;
  for (size_t d = 0; d < p.stride.size(); ++d) {
    count *= std::min(p.stride[d], p.kernel[d]);
  }
  return count;
}

Remainder remainder_of(const ConvolutionProblem& p, int64_t index) {
  Remainder remainder{p, {}, {}};
  ConvolutionProblem& forward = remainder.forward;
  std::swap(forward.channels, forward.out_channels);
  forward.input = p.output;
  forward.stride = {1, 1, 1};
  for (size_t d = 0; d < p.stride.size(); ++d) {
    const int64_t stride = p.stride[d];
    const int64_t count = std::min(stride, p.kernel[d]);
    const int64_t element = index % count;
    index /= count;
    const int64_t before = (p.padding[d] - element) % stride;
    const int64_t position = before > 0 ? stride - before : -before;
    remainder.position[d] = position;
    remainder.element[d] = element;
    forward.output[d] =
        ceil_div(std::max<int64_t>(p.input[d] - position, 0), stride);
    forward.kernel[d] = ceil_div(p.kernel[d] - element, stride);
    forward.padding[d] =
        forward.kernel[d] - 1 - (position + p.padding[d]) / stride;
  }
  return remainder;
}

}  // namespace

bool supports_direct_grouped_data(const ConvolutionProblem& p,
                                  const runtime::DeviceInfo& device) {
  bool is_supported = p.dilation == Spatial{1, 1, 1};
  for (int64_t index = 0; is_supported && index < remainders_of(p); ++index) {
    const ConvolutionProblem forward = remainder_of(p, index).forward;
    is_supported =
        forward.pixels() == 0 || supports_direct_grouped(forward, device);
  }
  return is_supported;
}

bool prefers_direct_grouped_data(const ConvolutionProblem& p,
                                 const runtime::DeviceInfo&) {
  return p.groups > 1 && p.filter_size() > 1;
}

void direct_grouped_backward_data(const ConvolutionProblem& p,
                                  const ConvolutionArguments& a) {
  const Tensor weight = swap_channels(p, a.weight);
  const int64_t remainders = remainders_of(p);
  if (remainders < p.stride[0] * p.stride[1] * p.stride[2]) {
    a.input.zero_();
  }
  for (int64_t index = 0; index < remainders; ++index) {
    const Remainder remainder = remainder_of(p, index);
    Tensor filter = weight;
    Tensor image = a.input;
    for (int d = 0; d < 3; ++d) {
      filter =
          filter.slice(d + 2, remainder.element[d], std::nullopt, p.stride[d]);
      image =
          image.slice(d + 2, remainder.position[d], std::nullopt, p.stride[d]);
    }
    if (image.numel() > 0) {
      direct_grouped_forward(remainder.forward,
                             {a.output, filter, Tensor(), image, true});
    }
  }
}

bool supports_rotated_filter(const ConvolutionProblem& p,
                             const runtime::DeviceInfo&) {
  return p.stride == Spatial{1, 1, 1};
}

void rotated_filter_backward_data(const ConvolutionProblem& p,
                                  const ConvolutionArguments& a) {
  ConvolutionProblem forward = p;
  std::swap(forward.channels, forward.out_channels);
  std::swap(forward.input, forward.output);
  for (size_t d = 0; d < p.padding.size(); ++d) {
    forward.padding[d] = p.dilation[d] * (p.kernel[d] - 1) - p.padding[d];
  }
  const ConvolutionArguments arguments{
      a.output, swap_channels(p, a.weight), Tensor(), a.input, true};
  aten::solve(forward_family(), forward, arguments, a.input);
}

}  // namespace torch_opencl::ops
