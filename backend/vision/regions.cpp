// torchvision's pooling of regions of interest, with gradients.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/reports.h"
#include "../common/dtype_check.h"
#include "../indexing/segments.h"
#include "kernel_sources.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// geometry_t of boxes.clh.
template <class Real>
struct RegionGeometry {
  int64_t strides[4];
  Real spatial_scale;
  int32_t images;
  int32_t channels;
  int32_t height;
  int32_t width;
  int32_t regions;
  int32_t pooled_channels;
  int32_t pooled_height;
  int32_t pooled_width;
  int32_t sampling_ratio;
  int32_t aligned;
};

struct RegionProblem {
  double spatial_scale;
  int64_t pooled_height;
  int64_t pooled_width;
  int64_t sampling_ratio = 0;
  bool aligned = false;
};

template <class Real>
RegionGeometry<Real> geometry_of(const RegionProblem& problem,
                                 const Tensor& image,
                                 const Tensor& pooled) {
  RegionGeometry<Real> geometry{};
  for (int d = 0; d < 4; ++d) {
    geometry.strides[d] = image.stride(d);
  }
  geometry.spatial_scale = static_cast<Real>(problem.spatial_scale);
  geometry.images = static_cast<int32_t>(image.size(0));
  geometry.channels = static_cast<int32_t>(image.size(1));
  geometry.height = static_cast<int32_t>(image.size(2));
  geometry.width = static_cast<int32_t>(image.size(3));
  geometry.regions = static_cast<int32_t>(pooled.size(0));
  geometry.pooled_channels = static_cast<int32_t>(pooled.size(1));
  geometry.pooled_height = static_cast<int32_t>(problem.pooled_height);
  geometry.pooled_width = static_cast<int32_t>(problem.pooled_width);
  geometry.sampling_ratio = static_cast<int32_t>(problem.sampling_ratio);
  geometry.aligned = problem.aligned;
  return geometry;
}

template <class... Arguments>
void launch_regions(const char* kernel,
                    const RegionProblem& problem,
                    const Tensor& image,
                    const Tensor& pooled,
                    size_t items,
                    const Arguments&... arguments) {
  const auto run = [&](const auto& geometry) {
    launch(image,
           sources::regions,
           kernel,
           {{"DTYPE", dtype_of(pooled)}, {"WG_SIZE", kWorkGroup}},
           range(items, kWorkGroup),
           geometry,
           arguments...);
  };
  if (pooled.scalar_type() == at::kDouble) {
    run(geometry_of<double>(problem, image, pooled));
  } else {
    run(geometry_of<float>(problem, image, pooled));
  }
}

void check_regions(const char* name, const Tensor& image, const Tensor& rois) {
  TORCH_CHECK(rois.dim() == 2 && rois.size(1) == 5,
              name,
              ": rois must have shape as Tensor[K, 5]");
  TORCH_CHECK(image.dim() == 4, name, ": input must have 4 dimensions");
  TORCH_CHECK(image.scalar_type() == rois.scalar_type(),
              name,
              ": expected input and rois to have the same dtype, got ",
              image.scalar_type(),
              " and ",
              rois.scalar_type());
  TORCH_CHECK(image.device() == rois.device(),
              name,
              ": expected input and rois on one device, got ",
              image.device(),
              " and ",
              rois.device());
  check_floating(name, image);
}

using Pooled = std::tuple<Tensor, Tensor>;

// The pooled regions, and what their bins remember (the kernels' `info`).
Pooled forward(const char* name,
               const char* kernel,
               const RegionProblem& problem,
               const Tensor& image,
               const Tensor& rois,
               bool position_sensitive) {
  check_regions(name, image, rois);
  const int64_t bins = problem.pooled_height * problem.pooled_width;
  TORCH_CHECK(!position_sensitive || image.size(1) % bins == 0,
              "input channels must be a multiple of pooling height * pooling "
              "width");
  const int64_t channels =
      position_sensitive ? image.size(1) / bins : image.size(1);
  const std::vector<int64_t> sizes{
      rois.size(0), channels, problem.pooled_height, problem.pooled_width};
  const Tensor out = at::empty(sizes, image.options());
  const Tensor info = at::empty(sizes, image.options().dtype(at::kInt));
  if (out.numel() > 0) {
    launch_regions(kernel,
                   problem,
                   image,
                   out,
                   out.numel(),
                   arg(out),
                   arg(info),
                   arg(image),
                   arg(rois.contiguous()),  // copy: rows of five
                   reports(image, name));
  }
  return {out, info};
}

// Pixels that the samples of all bins read; 0 where bins have samples of their
// own number.
int64_t target_count(const RegionProblem& problem, const Tensor& grad) {
  const int64_t ratio = std::max<int64_t>(problem.sampling_ratio, 0);
  return grad.numel() / grad.size(1) * ratio * ratio * 4;
}

// image = the sums of what goes to its pixels. `info` is that of forward().
void sum_bins(const char* kernel,
              const RegionProblem& problem,
              const Tensor& image,
              const Tensor& grad,
              const Tensor& rois,
              const Tensor& info) {
  launch_regions(
      kernel,
      problem,
      image,
      grad,
      image.size(0) * image.size(1),
      arg(image),
      arg(grad.contiguous()),  // copy: bins are found without strides
      arg(info),
      arg(rois.contiguous()));  // copy: rows of five
}

// As sum_bins() for roi_align on GPUs.
void sum_samples(const RegionProblem& problem,
                 const Tensor& image,
                 const Tensor& grad,
                 const Tensor& rois,
                 int64_t count) {
  const PixelTargets targets = empty_targets(image, count);
  launch_regions("roi_align_targets",
                 problem,
                 image,
                 grad,
                 count / 4,
                 arg(targets.pixels),
                 arg(targets.weights),
                 arg(rois.contiguous()));  // copy: rows of five
  sum_pixels(image, grad, targets);
}

// The gradient of an image; `sum` writes it where there is something to sum.
template <class Sum>
Tensor backward(const char* name,
                const Tensor& grad,
                at::IntArrayRef image_size,
                const Sum& sum) {
  check_floating(name, grad);
  // Pixels are summed in the type of arithmetic.
  const Tensor image = at::empty(
      image_size, grad.options().dtype(compute_type(grad.scalar_type())));
  if (grad.numel() == 0) {
    image.zero_();
  } else if (image.numel() > 0) {
    sum(image);
  }
  return image.to(grad.scalar_type());
}

Tensor roi_align(const Tensor& input,
                 const Tensor& rois,
                 double spatial_scale,
                 int64_t pooled_height,
                 int64_t pooled_width,
                 int64_t sampling_ratio,
                 bool aligned) {
  return std::get<0>(forward(
      "roi_align",
      "roi_align_forward",
      {spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned},
      input,
      rois,
      false));
}

Tensor roi_align_backward(const Tensor& grad,
                          const Tensor& rois,
                          double spatial_scale,
                          int64_t pooled_height,
                          int64_t pooled_width,
                          int64_t batch_size,
                          int64_t channels,
                          int64_t height,
                          int64_t width,
                          int64_t sampling_ratio,
                          bool aligned) {
  const char* const name = "roi_align_backward";
  const RegionProblem problem{
      spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned};
  const auto sum = [&](const Tensor& image) {
    const int64_t count = target_count(problem, grad);
    if (count > 0 && goes_by_pixels(image, count)) {
      sum_samples(problem, image, grad, rois, count);
    } else {
      sum_bins(name, problem, image, grad, rois, {});
    }
  };
  return backward(name, grad, {batch_size, channels, height, width}, sum);
}

// `argmax` is the channel mapping where regions are position-sensitive.
template <bool kPositionSensitive>
Pooled roi_pool(const Tensor& input,
                const Tensor& rois,
                double spatial_scale,
                int64_t pooled_height,
                int64_t pooled_width) {
  return forward(
      kPositionSensitive ? "ps_roi_pool" : "roi_pool",
      kPositionSensitive ? "ps_roi_pool_forward" : "roi_pool_forward",
      {spatial_scale, pooled_height, pooled_width},
      input,
      rois,
      kPositionSensitive);
}

template <bool kPositionSensitive>
Tensor roi_pool_backward(const Tensor& grad,
                         const Tensor& rois,
                         const Tensor& argmax,
                         double spatial_scale,
                         int64_t pooled_height,
                         int64_t pooled_width,
                         int64_t batch_size,
                         int64_t channels,
                         int64_t height,
                         int64_t width) {
  const char* const name =
      kPositionSensitive ? "ps_roi_pool_backward" : "roi_pool_backward";
  const RegionProblem problem{spatial_scale, pooled_height, pooled_width};
  const auto sum = [&](const Tensor& image) {
    sum_bins(name, problem, image, grad, rois, argmax);
  };
  return backward(name, grad, {batch_size, channels, height, width}, sum);
}

Pooled ps_roi_align(const Tensor& input,
                    const Tensor& rois,
                    double spatial_scale,
                    int64_t pooled_height,
                    int64_t pooled_width,
                    int64_t sampling_ratio) {
  return forward("ps_roi_align",
                 "ps_roi_align_forward",
                 {spatial_scale, pooled_height, pooled_width, sampling_ratio},
                 input,
                 rois,
                 true);
}

Tensor ps_roi_align_backward(const Tensor& grad,
                             const Tensor& rois,
                             const Tensor& channel_mapping,
                             double spatial_scale,
                             int64_t pooled_height,
                             int64_t pooled_width,
                             int64_t sampling_ratio,
                             int64_t batch_size,
                             int64_t channels,
                             int64_t height,
                             int64_t width) {
  const char* const name = "ps_roi_align_backward";
  const RegionProblem problem{
      spatial_scale, pooled_height, pooled_width, sampling_ratio};
  const auto sum = [&](const Tensor& image) {
    sum_bins(name, problem, image, grad, rois, channel_mapping);
  };
  return backward(name, grad, {batch_size, channels, height, width}, sum);
}

}  // namespace

TORCH_LIBRARY_IMPL(torchvision, PrivateUse1, m) {
  m.impl("roi_align", TORCH_FN(roi_align));
  m.impl("_roi_align_backward", TORCH_FN(roi_align_backward));
  m.impl("roi_pool", TORCH_FN(roi_pool<false>));
  m.impl("_roi_pool_backward", TORCH_FN(roi_pool_backward<false>));
  m.impl("ps_roi_align", TORCH_FN(ps_roi_align));
  m.impl("_ps_roi_align_backward", TORCH_FN(ps_roi_align_backward));
  m.impl("ps_roi_pool", TORCH_FN(roi_pool<true>));
  m.impl("_ps_roi_pool_backward", TORCH_FN(roi_pool_backward<true>));
}

}  // namespace torch_opencl::ops
