// The data gradient of a convolution with unit strides is a convolution of the
// output's gradient: its weights have their taps reversed and their channels
// swapped.
#include "convolution.h"

#include "../../cpp/aten/launch.h"

#include <algorithm>

namespace torch_opencl::ops {

using at::Tensor;

namespace {

// (O, C / g, taps) to (C, O / g, taps).
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

}  // namespace

bool supports_flipped(const ConvolutionProblem& p, const runtime::DeviceInfo&) {
  return p.stride == Spatial{1, 1, 1};
}

void flipped_backward_data(const ConvolutionProblem& p,
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
