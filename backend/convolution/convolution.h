// A convolution as its solvers see it. One- and two-dimensional ones have
// three spatial dimensions as well, the leading ones of size one.
#pragma once

#include "../../cpp/aten/solver.h"
#include "../gemm/packed.h"

#include <ATen/core/Tensor.h>

#include <array>

namespace torch_opencl::ops {

using Spatial = std::array<int64_t, 3>;  // depth, height, width

// A kernel's int4 argument.
using Vector4 = std::array<int32_t, 4>;
inline Vector4 vector4(const Spatial& spatial) {
  return {static_cast<int32_t>(spatial[0]),
          static_cast<int32_t>(spatial[1]),
          static_cast<int32_t>(spatial[2]),
          0};
}

// Plain values: what a solver is chosen by.
struct ConvolutionProblem {
  int64_t images;
  int64_t channels;      // of the input
  int64_t out_channels;  // of the output
  int64_t groups;
  Spatial input;
  Spatial output;
  Spatial kernel;
  Spatial stride;
  Spatial padding;
  Spatial dilation;
  at::ScalarType dtype;
  bool is_large;
  bool is_channels_last;

  int64_t pixels() const { return output[0] * output[1] * output[2]; }
  int64_t filter_size() const { return kernel[0] * kernel[1] * kernel[2]; }
  // Length of the sums of one output element.
  int64_t depth() const { return channels / groups * filter_size(); }
  // All of it, for people and as a key.
  std::string text() const;
};

// Five-dimensional tensors: input and its gradient (N, C, D, H, W), weight (O,
// C / groups, kD, kH, kW), output (N, O, oD, oH, oW). Which of them a solver
// writes is its family's matter; `bias` may be undefined. A forward solver that
// finds `rotates_filter` set takes the weight's filter elements from the last
// to the first.
struct ConvolutionArguments {
  at::Tensor input;
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor output;
  bool rotates_filter = false;
};

using ConvolutionSolver =
    aten::Solver<ConvolutionProblem, ConvolutionArguments>;

using ConvolutionFamily =
    aten::SolverFamily<ConvolutionProblem, ConvolutionArguments>;

// The solvers that write output = conv(input, weight) + bias. Those of data
// gradients write input, the adjoint of that in its input, from output; those
// of weight gradients write weight, the adjoint in its weight.
const ConvolutionFamily& forward_family();

// Through columns and matrix products: apply to every problem.
void im2col_forward(const ConvolutionProblem&, const ConvolutionArguments&);
void im2col_backward_data(const ConvolutionProblem&,
                          const ConvolutionArguments&);
void im2col_backward_weight(const ConvolutionProblem&,
                            const ConvolutionArguments&);

// Kernels of one filter element, undilated: a matrix product of the tensors
// themselves.
bool supports_conv1x1(const ConvolutionProblem&, const runtime::DeviceInfo&);
void conv1x1_forward(const ConvolutionProblem&, const ConvolutionArguments&);
void conv1x1_backward_data(const ConvolutionProblem&,
                           const ConvolutionArguments&);
void conv1x1_backward_weight(const ConvolutionProblem&,
                             const ConvolutionArguments&);

// 3 x 3 with unit strides; preferred where images and channels are large.
bool supports_winograd(const ConvolutionProblem&, const runtime::DeviceInfo&);
bool prefers_winograd(const ConvolutionProblem&, const runtime::DeviceInfo&);
void winograd_forward(const ConvolutionProblem&, const ConvolutionArguments&);
void winograd_backward_weight(const ConvolutionProblem&,
                              const ConvolutionArguments&);

// Without columns, on GPUs.
bool supports_implicit(const ConvolutionProblem&, const runtime::DeviceInfo&);
bool prefers_implicit_data(const ConvolutionProblem&,
                           const runtime::DeviceInfo&);
void implicit_forward(const ConvolutionProblem&, const ConvolutionArguments&);
void implicit_backward_data(const ConvolutionProblem&,
                            const ConvolutionArguments&);
void implicit_backward_weight(const ConvolutionProblem&,
                              const ConvolutionArguments&);

// Without columns, on CPUs; preferred where channels follow each other.
bool supports_direct(const ConvolutionProblem&, const runtime::DeviceInfo&);
bool supports_direct_data(const ConvolutionProblem&,
                          const runtime::DeviceInfo&);
bool supports_direct_weight(const ConvolutionProblem&,
                            const runtime::DeviceInfo&);
bool prefers_direct(const ConvolutionProblem&, const runtime::DeviceInfo&);
bool prefers_direct_data(const ConvolutionProblem&, const runtime::DeviceInfo&);
bool prefers_direct_weight(const ConvolutionProblem&,
                           const runtime::DeviceInfo&);
void direct_forward(const ConvolutionProblem&, const ConvolutionArguments&);
void direct_backward_data(const ConvolutionProblem&,
                          const ConvolutionArguments&);
void direct_backward_weight(const ConvolutionProblem&,
                            const ConvolutionArguments&);

// Unit strides: the data gradient is the forward of a rotated filter.
bool supports_rotated_filter(const ConvolutionProblem&,
                             const runtime::DeviceInfo&);
void rotated_filter_backward_data(const ConvolutionProblem&,
                                  const ConvolutionArguments&);

// Groups or images of few channels in two dimensions, on CPUs, without columns.
bool supports_direct_grouped(const ConvolutionProblem&,
                             const runtime::DeviceInfo&);
bool prefers_direct_grouped(const ConvolutionProblem&,
                            const runtime::DeviceInfo&);
void direct_grouped_forward(const ConvolutionProblem&,
                            const ConvolutionArguments&);
bool supports_direct_grouped_data(const ConvolutionProblem&,
                                  const runtime::DeviceInfo&);
bool prefers_direct_grouped_data(const ConvolutionProblem&,
                                 const runtime::DeviceInfo&);
void direct_grouped_backward_data(const ConvolutionProblem&,
                                  const ConvolutionArguments&);
bool supports_direct_grouped_weight(const ConvolutionProblem&,
                                    const runtime::DeviceInfo&);
bool prefers_direct_grouped_weight(const ConvolutionProblem&,
                                   const runtime::DeviceInfo&);
void direct_grouped_backward_weight(const ConvolutionProblem&,
                                    const ConvolutionArguments&);

// Every output channel reads one input channel, in two dimensions; preferred
// where few output channels read the same one.
bool supports_depthwise(const ConvolutionProblem&, const runtime::DeviceInfo&);
bool prefers_depthwise(const ConvolutionProblem&, const runtime::DeviceInfo&);
bool prefers_depthwise_data(const ConvolutionProblem&,
                            const runtime::DeviceInfo&);
bool prefers_depthwise_weight(const ConvolutionProblem&,
                              const runtime::DeviceInfo&);
void depthwise_forward(const ConvolutionProblem&, const ConvolutionArguments&);
void depthwise_backward_data(const ConvolutionProblem&,
                             const ConvolutionArguments&);
void depthwise_backward_weight(const ConvolutionProblem&,
                               const ConvolutionArguments&);

// One past the last element that the tensor reaches.
inline int64_t extent_of(const at::Tensor& tensor) {
  int64_t extent = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    extent += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return extent;
}

// The tensor, or a copy of it, whose positions follow each other at one stride,
// that of the last dimension.
at::Tensor with_pixel_stride(const at::Tensor& tensor);
// Positions of all images of such a tensor, one after the other.
inline Levels pixels_of(const ConvolutionProblem& p, const at::Tensor& tensor) {
  return {p.pixels(), tensor.stride(0), tensor.stride(4)};
}

// What a forward product adds to its `rows` output channels a group.
Addend bias_of(const ConvolutionArguments& a, int64_t rows);

}  // namespace torch_opencl::ops
