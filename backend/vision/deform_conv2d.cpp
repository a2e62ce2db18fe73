// torchvision::deform_conv2d and its gradients, image by image.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/no_autocast.h"
#include "../common/dtype_check.h"
#include "../indexing/segments.h"
#include "kernel_sources.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// geometry_t of deform_conv2d.cl.
struct DeformConvGeometry {
  int32_t channels;
  int32_t height;
  int32_t width;
  int32_t kernel_height;
  int32_t kernel_width;
  int32_t out_height;
  int32_t out_width;
  int32_t stride[2];
  int32_t padding[2];
  int32_t dilation[2];
  int32_t groups;
  int32_t masked;
};

struct Options {
  int64_t stride_h;
  int64_t stride_w;
  int64_t pad_h;
  int64_t pad_w;
  int64_t dilation_h;
  int64_t dilation_w;
  int64_t groups;
  int64_t offset_groups;
  bool use_mask;
};

int64_t out_size(
    int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  return (in + 2 * pad - (dilation * (kernel - 1) + 1)) / stride + 1;
}

void check_tensors(const Tensor& input,
                   const Tensor& weight,
                   const Tensor& offset,
                   const Tensor& mask,
                   const Options& options) {
  TORCH_CHECK(input.dim() == 4, "deform_conv2d: input must have 4 dimensions");
  TORCH_CHECK(offset.dim() == 4,
              "deform_conv2d: offset must have 4 dimensions");
  TORCH_CHECK(weight.dim() == 4,
              "deform_conv2d: weight must have 4 dimensions");
  TORCH_CHECK(!options.use_mask || mask.dim() == 4,
              "deform_conv2d: mask must have 4 dimensions");
  check_floating("deform_conv2d", input);
  for (const Tensor& other : {weight, offset}) {
    TORCH_CHECK(other.scalar_type() == input.scalar_type() &&
                    other.device() == input.device(),
                "deform_conv2d: expected tensors of ",
                input.scalar_type(),
                " on ",
                input.device(),
                ", got ",
                other.scalar_type(),
                " on ",
                other.device());
  }
}

void check_options(const Tensor& input,
                   const Tensor& weight,
                   const Options& options) {
  TORCH_CHECK(weight.size(2) > 0 && weight.size(3) > 0,
              "weight_h: ",
              weight.size(2),
              " weight_w: ",
              weight.size(3));
  TORCH_CHECK(options.stride_h > 0 && options.stride_w > 0,
              "stride_h: ",
              options.stride_h,
              " stride_w: ",
              options.stride_w);
  TORCH_CHECK(options.pad_h >= 0 && options.pad_w >= 0,
              "pad_h: ",
              options.pad_h,
              " pad_w: ",
              options.pad_w);
  TORCH_CHECK(options.dilation_h > 0 && options.dilation_w > 0,
              "dil_h: ",
              options.dilation_h,
              " dil_w: ",
              options.dilation_w);
  TORCH_CHECK(weight.size(1) * options.groups == input.size(1),
              "deform_conv2d: input has ",
              input.size(1),
              " channels, weight wants ",
              weight.size(1) * options.groups);
  TORCH_CHECK(weight.size(0) % options.groups == 0,
              "deform_conv2d: the number of output channels must be divisible "
              "by groups");
  TORCH_CHECK(input.size(1) % options.offset_groups == 0,
              "deform_conv2d: input channels must be divisible by the number "
              "of offset groups");
}

// That the output is not empty, and that offset and mask are of its size.
void check_sizes(const Tensor& input,
                 const Tensor& weight,
                 const Tensor& offset,
                 const Tensor& mask,
                 const Options& options) {
  const int64_t filter_size = weight.size(2) * weight.size(3);
  const int64_t height = out_size(input.size(2),
                                  weight.size(2),
                                  options.stride_h,
                                  options.pad_h,
                                  options.dilation_h);
  const int64_t width = out_size(input.size(3),
                                 weight.size(3),
                                 options.stride_w,
                                 options.pad_w,
                                 options.dilation_w);
  TORCH_CHECK(height > 0 && width > 0,
              "Calculated output size too small - out_h: ",
              height,
              " out_w: ",
              width);
  const auto check = [&](const char* name, const Tensor& tensor, int64_t each) {
    const std::vector<int64_t> wanted{
        input.size(0),
        options.offset_groups * each * filter_size,
        height,
        width};
    TORCH_CHECK(tensor.sizes() == at::IntArrayRef(wanted),
                "deform_conv2d: expected ",
                name,
                " of shape ",
                at::IntArrayRef(wanted),
                ", got ",
                tensor.sizes());
  };
  check("offset", offset, 2);
  if (options.use_mask) {
    check("mask", mask, 1);
  }
}

void check_arguments(const Tensor& input,
                     const Tensor& weight,
                     const Tensor& offset,
                     const Tensor& mask,
                     const Options& options) {
  check_tensors(input, weight, offset, mask, options);
  check_options(input, weight, options);
  check_sizes(input, weight, offset, mask, options);
}

DeformConvGeometry geometry_of(const Tensor& input,
                               const Tensor& weight,
                               const Tensor& offset,
                               const Options& options) {
  const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  return {narrow(input.size(1)),
          narrow(input.size(2)),
          narrow(input.size(3)),
          narrow(weight.size(2)),
          narrow(weight.size(3)),
          narrow(offset.size(2)),
          narrow(offset.size(3)),
          {narrow(options.stride_h), narrow(options.stride_w)},
          {narrow(options.pad_h), narrow(options.pad_w)},
          {narrow(options.dilation_h), narrow(options.dilation_w)},
          narrow(options.offset_groups),
          options.use_mask};
}

// The tensors of one call, contiguous, and what is common to its launches.
struct DeformConvProblem {
  Tensor input;
  Tensor weight;  // (groups, out channels, rows)
  Tensor offset;
  Tensor mask;
  DeformConvGeometry geometry;
  int64_t groups;

  DeformConvProblem(const Tensor& input_,
                    const Tensor& weight_,
                    const Tensor& offset_,
                    const Tensor& mask_,
                    const Options& options)
      : input(input_.contiguous()),  // copy: planes are found without strides
        weight(weight_.contiguous().view(  // copy: a matrix a group
            {options.groups, weight_.size(0) / options.groups, -1})),
        offset(offset_.contiguous()),  // copy: as the input
        mask(mask_.contiguous()),      // copy: as the input
        geometry(geometry_of(input_, weight_, offset_, options)),
        groups(options.groups) {}

  int64_t positions() const { return offset.size(2) * offset.size(3); }
  int64_t filter_size() const {
    return int64_t{geometry.kernel_height} * geometry.kernel_width;
  }
  Tensor mask_of(int64_t image) const {
    return geometry.masked ? mask.select(0, image) : Tensor();
  }
  // (channel, filter element) x position
  Tensor empty_columns() const {
    return at::empty({geometry.channels * filter_size(), positions()},
                     input.options());
  }
  Tensor columns(int64_t image) const {
    const Tensor result = empty_columns();
    run("deformable_columns",
        range(positions(), result.size(0), kWorkGroup, 1),
        result,
        input.select(0, image),
        offset.select(0, image),
        mask_of(image));
    return result.view({groups, -1, positions()});
  }

  template <class... Tensors>
  void run(const char* kernel,
           const NDRange& work,
           const Tensors&... tensors) const {
    launch(input,
           sources::deform_conv2d,
           kernel,
           {{"DTYPE", dtype_of(input)}, {"WG_SIZE", kWorkGroup}},
           work,
           geometry,
           arg(tensors)...);
  }
};

Tensor deform_conv2d(const Tensor& input,
                     const Tensor& weight,
                     const Tensor& offset,
                     const Tensor& mask,
                     const Tensor& bias,
                     int64_t stride_h,
                     int64_t stride_w,
                     int64_t pad_h,
                     int64_t pad_w,
                     int64_t dilation_h,
                     int64_t dilation_w,
                     int64_t groups,
                     int64_t offset_groups,
                     bool use_mask) {
  const Options options{stride_h,
                        stride_w,
                        pad_h,
                        pad_w,
                        dilation_h,
                        dilation_w,
                        groups,
                        offset_groups,
                        use_mask};
  check_arguments(input, weight, offset, mask, options);
  const Tensor out =
      at::empty({input.size(0), weight.size(0), offset.size(2), offset.size(3)},
                input.options());
  const DeformConvProblem problem(input, weight, offset, mask, options);
  for (int64_t n = 0; n < input.size(0); ++n) {
    Tensor image = out.select(0, n).view({groups, -1, problem.positions()});
    at::bmm_out(image, problem.weight, problem.columns(n));
  }
  return out.add_(bias.view({1, -1, 1, 1}));
}

// Each image writes its part, and adds to that of the weight.
struct DeformConvGradients {
  Tensor input;
  Tensor offset;
  Tensor mask;
  Tensor weight;
};

// Of image `n`, on GPUs, where each offset group has targets of its own.
void sum_image(const DeformConvProblem& problem,
               const Tensor& grad_columns,
               const Tensor& grad_images,
               int64_t n) {
  const DeformConvGeometry& geometry = problem.geometry;
  const int64_t positions = problem.positions();
  const int64_t filter_size = problem.filter_size();
  const int64_t count = filter_size * positions * 4;
  const PixelTargets targets =
      empty_targets(grad_images, count, geometry.groups);
  problem.run("deformable_targets",
              range(positions, geometry.groups * filter_size, kWorkGroup, 1),
              targets.pixels,
              targets.weights,
              problem.offset.select(0, n),
              problem.mask_of(n));
  const Tensor columns =
      grad_columns.view({1, geometry.channels, filter_size * positions});
  const int64_t channels = geometry.channels / geometry.groups;
  for (int64_t group = 0; group < geometry.groups; ++group) {
    const int64_t first = group * channels;
    sum_pixels(grad_images.narrow(0, n, 1).narrow(1, first, channels),
               columns.narrow(1, first, channels),
               targets,
               group);
  }
}

// Of image `n`; `grad` is that of its output.
void image_backward(const DeformConvProblem& problem,
                    const DeformConvGradients& gradients,
                    const Tensor& grad,
                    int64_t n) {
  const DeformConvGeometry& geometry = problem.geometry;
  const int64_t positions = problem.positions();
  const int64_t filter_size = problem.filter_size();
  const Tensor image_grad = grad.view({problem.groups, -1, positions});
  gradients.weight.add_(
      at::bmm(image_grad, problem.columns(n).transpose(1, 2)));
  Tensor grad_columns = problem.empty_columns();
  Tensor by_group = grad_columns.view({problem.groups, -1, positions});
  at::bmm_out(by_group, problem.weight.transpose(1, 2), image_grad);
  if (goes_by_pixels(gradients.input, filter_size * positions * 4)) {
    sum_image(problem, grad_columns, gradients.input, n);
  } else {
    problem.run("deformable_image_backward",
                range(geometry.channels, kWorkGroup),
                gradients.input.select(0, n),
                grad_columns,
                problem.offset.select(0, n),
                problem.mask_of(n));
  }
  problem.run("deformable_offset_backward",
              range(positions, geometry.groups * filter_size, kWorkGroup, 1),
              gradients.offset.select(0, n),
              geometry.masked ? gradients.mask.select(0, n) : Tensor(),
              grad_columns,
              problem.input.select(0, n),
              problem.offset.select(0, n),
              problem.mask_of(n));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> deform_conv2d_backward(
    const Tensor& grad,
    const Tensor& input,
    const Tensor& weight,
    const Tensor& offset,
    const Tensor& mask,
    const Tensor& bias,
    int64_t stride_h,
    int64_t stride_w,
    int64_t pad_h,
    int64_t pad_w,
    int64_t dilation_h,
    int64_t dilation_w,
    int64_t groups,
    int64_t offset_groups,
    bool use_mask) {
  const Options options{stride_h,
                        stride_w,
                        pad_h,
                        pad_w,
                        dilation_h,
                        dilation_w,
                        groups,
                        offset_groups,
                        use_mask};
  const aten::NoAutocast guard;
  check_arguments(input, weight, offset, mask, options);
  const DeformConvProblem problem(input, weight, offset, mask, options);
  const Tensor grads = grad.contiguous();  // copy: a matrix an image
  const auto contiguous = at::MemoryFormat::Contiguous;
  const auto type = compute_type(input.scalar_type());
  const DeformConvGradients gradients{
      at::empty(input.sizes(), input.options().dtype(type)),
      at::empty_like(problem.offset, contiguous),
      at::zeros_like(problem.mask, {}, contiguous),
      at::zeros_like(problem.weight)};
  for (int64_t n = 0; n < input.size(0); ++n) {
    image_backward(problem, gradients, grads.select(0, n), n);
  }
  return {gradients.input.to(input.scalar_type()),
          gradients.weight.view(weight.sizes()),
          gradients.offset,
          gradients.mask,
          grads.sum({0, 2, 3})};
}

}  // namespace

TORCH_LIBRARY_IMPL(torchvision, PrivateUse1, m) {
  m.impl("deform_conv2d", TORCH_FN(deform_conv2d));
  m.impl("_deform_conv2d_backward", TORCH_FN(deform_conv2d_backward));
}

}  // namespace torch_opencl::ops
