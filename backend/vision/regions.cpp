// torchvision's pooling of regions of interest, with gradients.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/reports.h"
#include "../common/dtype_check.h"
#include "../indexing/segments.h"
#include "kernel_sources.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <array>
#include <optional>

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

Tensor backward(const char* kernel,
                const RegionProblem& problem,
                const Tensor& grad,
                const Tensor& rois,
                const Tensor& info,
                at::IntArrayRef image_size) {
  check_floating(kernel, grad);
  // Planes are summed in the type of arithmetic.
  const Tensor grad_image = at::empty(
      image_size, grad.options().dtype(compute_type(grad.scalar_type())));
  if (grad_image.numel() == 0) {
    return grad_image.to(grad.scalar_type());
  }
  if (grad.numel() == 0) {
    return grad_image.zero_().to(grad.scalar_type());
  }
  launch_regions(
      kernel,
      problem,
      grad_image,
      grad,
      grad_image.size(0) * grad_image.size(1),
      arg(grad_image),
      arg(grad.contiguous()),  // copy: bins are found without strides
      arg(info),
      arg(rois.contiguous()));  // copy: rows of five
  return grad_image.to(grad.scalar_type());
}

// The gradient of roi_align's image on GPUs, where bins have equally many
// samples.
std::optional<Tensor> image_of_samples(const RegionProblem& problem,
                                       const Tensor& grad,
                                       const Tensor& rois,
                                       at::IntArrayRef image_size) {
  const int64_t samples = problem.sampling_ratio * problem.sampling_ratio;
  if (problem.sampling_ratio <= 0 || grad.numel() == 0 ||
      c10::multiply_integers(image_size) == 0) {
    return std::nullopt;
  }
  check_floating("roi_align_backward", grad);
  const Tensor image = at::empty(
      image_size, grad.options().dtype(compute_type(grad.scalar_type())));
  const int64_t count = grad.numel() / grad.size(1) * samples * 4;
  if (!goes_by_pixels(image, count)) {
    return std::nullopt;
  }
  const Tensor targets = at::empty({1, count}, grad.options().dtype(at::kInt));
  const Tensor weights = at::empty({count}, image.options());
  launch_regions("roi_align_targets",
                 problem,
                 image,
                 grad,
                 count / 4,
                 arg(targets),
                 arg(weights),
                 arg(rois.contiguous()));  // copy: rows of five
  sum_pixels(image, grad, targets, weights);
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
  const RegionProblem problem{
      spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned};
  const std::array<int64_t, 4> sizes{batch_size, channels, height, width};
  const auto image = image_of_samples(problem, grad, rois, sizes);
  return image ? *image
               : backward("roi_align_backward", problem, grad, rois, {}, sizes);
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
  return backward(
      kPositionSensitive ? "ps_roi_pool_backward" : "roi_pool_backward",
      {spatial_scale, pooled_height, pooled_width},
      grad,
      rois,
      argmax,
      {batch_size, channels, height, width});
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
  return backward("ps_roi_align_backward",
                  {spatial_scale, pooled_height, pooled_width, sampling_ratio},
                  grad,
                  rois,
                  channel_mapping,
                  {batch_size, channels, height, width});
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
