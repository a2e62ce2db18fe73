// grid_sampler_2d and grid_sampler_3d, with gradients.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "../common/integers.h"
#include "../common/lanes.h"
#include "../indexing/segments.h"
#include "kernel_sources.h"

#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/grid_sampler_2d_backward_ops.h>
#include <ATen/ops/grid_sampler_2d_ops.h>
#include <ATen/ops/grid_sampler_3d_backward_ops.h>
#include <ATen/ops/grid_sampler_3d_ops.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int kTaps[] = {2, 1, 4};  // bilinear, nearest, bicubic
// Of kernels for CPUs.
constexpr int kSlotsOfBlock = 1024;
constexpr int64_t kItems = 64;         // at least, where channels suffice
constexpr int64_t kMostChannels = 16;  // of an item

// geometry_t of grid_sampler.clh.
struct GridSamplerGeometry {
  int64_t image_strides[5];
  int64_t out_strides[5];
  int64_t grid_strides[5];
  int32_t images;
  int32_t channels;
  int32_t image[3];
  int32_t out[3];
};

struct Options {
  int64_t interpolation_mode;
  int64_t padding_mode;
  bool align_corners;
};

template <int kSpatial>
void check_arguments(const Tensor& input,
                     const Tensor& grid,
                     const Options& options) {
  at::native::check_grid_sampler_common(input, grid);
  if constexpr (kSpatial == 2) {
    at::native::check_grid_sampler_2d(input, grid);
  } else {
    at::native::check_grid_sampler_3d(input, grid, options.interpolation_mode);
  }
  check_floating("grid_sampler", input);
  const auto is_mode = [](int64_t mode) { return mode >= 0 && mode <= 2; };
  TORCH_CHECK(
      is_mode(options.interpolation_mode) && is_mode(options.padding_mode),
      "grid_sampler(): expected interpolation and padding modes from 0 "
      "to 2, but got ",
      options.interpolation_mode,
      " and ",
      options.padding_mode);
  TORCH_CHECK(input.scalar_type() == grid.scalar_type(),
              "grid_sampler(): expected input and grid to have the same dtype, "
              "but input has ",
              input.scalar_type(),
              " and grid has ",
              grid.scalar_type());
}

template <int kSpatial>
GridSamplerGeometry geometry_of(const Tensor& image,
                                const Tensor& grid,
                                const Tensor& out) {
  GridSamplerGeometry geometry{};
  geometry.images = static_cast<int32_t>(image.size(0));
  geometry.channels = static_cast<int32_t>(image.size(1));
  for (int d = 0; d < 2; ++d) {
    geometry.image_strides[d] = image.stride(d);
    geometry.out_strides[d] = out.stride(d);
  }
  geometry.grid_strides[0] = grid.stride(0);
  geometry.grid_strides[4] = grid.stride(-1);
  for (int axis = 0; axis < 3; ++axis) {
    const int own = axis - (3 - kSpatial);
    geometry.image[axis] =
        own < 0 ? 1 : static_cast<int32_t>(image.size(2 + own));
    geometry.out[axis] = own < 0 ? 1 : static_cast<int32_t>(out.size(2 + own));
    if (own >= 0) {
      geometry.image_strides[2 + axis] = image.stride(2 + own);
      geometry.out_strides[2 + axis] = out.stride(2 + own);
      geometry.grid_strides[1 + axis] = grid.stride(1 + own);
    }
  }
  return geometry;
}

// Launches a kernel whose last argument is the grid. Kernels for CPUs walk
// blocks of `groups` of `lanes` pixels.
template <int kSpatial, class... Arguments>
void launch_sampler(const runtime::KernelSource& source,
                    const char* kernel,
                    const Options& options,
                    const NDRange& work,
                    int groups,
                    int lanes,
                    const Tensor& grid,
                    const Arguments&... arguments) {
  launch(grid,
         source,
         kernel,
         {{"DTYPE", dtype_of(grid)},
          {"INTERPOLATION", options.interpolation_mode},
          {"PADDING", options.padding_mode},
          {"ALIGN_CORNERS", options.align_corners},
          {"SPATIAL", kSpatial},
          {"GROUPS", groups},
          {"LANES", lanes},
          {"WG_SIZE", static_cast<int64_t>(work.local[0])}},
         work,
         arguments...,
         arg_in(grid));
}

template <int kSpatial, class... Tensors>
void run(const char* kernel,
         const Options& options,
         const NDRange& work,
         const GridSamplerGeometry& geometry,
         const Tensor& grid,
         const Tensors&... tensors) {
  launch_sampler<kSpatial>(sources::grid_sampler,
                           kernel,
                           options,
                           work,
                           1,
                           1,
                           grid,
                           geometry,
                           arg(tensors)...);
}

template <int kSpatial>
std::vector<int64_t> out_sizes(const Tensor& input, const Tensor& grid) {
  std::vector<int64_t> sizes{input.size(0), input.size(1)};
  for (int axis = 0; axis < kSpatial; ++axis) {
    sizes.push_back(grid.size(1 + axis));
  }
  return sizes;
}

// The stride of dimensions that can be walked as one, or 0.
int64_t merged_stride(const Tensor& tensor, int64_t first, int64_t last) {
  int64_t stride = 0;
  int64_t expected = 0;
  for (int64_t d = last; d >= first; --d) {
    if (tensor.size(d) == 1) {
      continue;
    }
    if (tensor.stride(d) == 0 ||
        (stride != 0 && tensor.stride(d) != expected)) {
      return 0;
    }
    stride = stride == 0 ? tensor.stride(d) : stride;
    expected = tensor.stride(d) * tensor.size(d);
  }
  return stride == 0 ? 1 : stride;
}

// Kernels for CPUs walk pixels by 32-bit indices.
bool goes_by_blocks(const Tensor& image, const Tensor& grid) {
  const int64_t most = std::numeric_limits<int32_t>::max() / 2;
  int64_t extent = 0;
  for (int64_t d = 2; d < image.dim(); ++d) {
    extent += (image.size(d) - 1) * image.stride(d);
  }
  return aten::device_of(grid).is_cpu() && extent < most &&
         image[0][0].numel() < most && grid[0].numel() < most;
}

bool has_rows(const Tensor& image) {
  return image.size(-1) == 1 || image.stride(-1) == 1;
}

bool has_pixels(const Tensor& image) {
  return image.stride(1) == 1 && image.size(1) >= kLanes;
}

// copy: of a grid whose pixels cannot be walked as one dimension, small beside
// what is made of it.
Tensor grid_of_blocks(const Tensor& grid) {
  return !aten::device_of(grid).is_cpu() ||
                 merged_stride(grid, 1, grid.dim() - 2) != 0
             ? grid
             : grid.clone(at::MemoryFormat::Contiguous);
}

// copy: of a gradient whose pixels do not follow each other.
Tensor gradient_of_blocks(const Tensor& gradient) {
  return !aten::device_of(gradient).is_cpu() ||
                 merged_stride(gradient, 2, gradient.dim() - 1) == 1
             ? gradient
             : gradient.clone(at::MemoryFormat::Contiguous);
}

template <int kSpatial>
int pixels_of_block(const Options& options) {
  const int taps = kTaps[options.interpolation_mode];
  return std::min(256,
                  kSlotsOfBlock / (kSpatial == 3 ? taps * taps : taps) / taps);
}

// Launches a kernel for CPUs.
template <int kSpatial, class... Arguments>
void run_blocks(const runtime::KernelSource& source,
                const char* kernel,
                const Options& options,
                const NDRange& work,
                const Tensor& image,
                const Tensor& grid,
                const Tensor& out,
                const Arguments&... arguments) {
  GridSamplerGeometry geometry = geometry_of<kSpatial>(image, grid, out);
  geometry.grid_strides[3] = merged_stride(grid, 1, kSpatial);
  launch_sampler<kSpatial>(source,
                           kernel,
                           options,
                           work,
                           pixels_of_block<kSpatial>(options) / kLanes,
                           kLanes,
                           grid,
                           geometry,
                           arguments...);
}

template <int kSpatial>
void forward_blocks(const Options& options,
                    const Tensor& image,
                    const Tensor& grid,
                    const Tensor& out) {
  const int64_t blocks =
      ceil_div(out[0][0].numel(), pixels_of_block<kSpatial>(options));
  const int64_t channels = image.size(1);
  if (has_pixels(image)) {
    run_blocks<kSpatial>(sources::grid_sampler_pixels,
                         "grid_sampler_forward_pixels",
                         options,
                         range(blocks, out.size(0), 1, 1),
                         image,
                         grid,
                         out,
                         arg(out),
                         arg_in(image));
    return;
  }
  const int64_t parts = std::clamp<int64_t>(
      kItems / (blocks * out.size(0)), 1, ceil_div(channels, kMostChannels));
  const int64_t channels_of_item = ceil_div(channels, parts);
  run_blocks<kSpatial>(
      sources::grid_sampler_planes,
      "grid_sampler_forward_planes",
      options,
      range(blocks, out.size(0), ceil_div(channels, channels_of_item), 1, 1, 1),
      image,
      grid,
      out,
      static_cast<int32_t>(channels_of_item),
      arg(out),
      arg_in(image));
}

template <int kSpatial>
void image_backward_blocks(const Options& options,
                           const Tensor& gradient,
                           const Tensor& grid,
                           const Tensor& grad_input) {
  const int64_t images = grad_input.size(0);
  const int64_t channels = grad_input.size(1);
  const int64_t channels_of_item =
      std::clamp<int64_t>(images * channels / kItems, 1, kMostChannels);
  run_blocks<kSpatial>(
      sources::grid_sampler_planes_backward,
      "grid_sampler_image_backward_planes",
      options,
      range(ceil_div(channels, channels_of_item), images, 1, 1),
      grad_input,
      grid,
      gradient,
      static_cast<int32_t>(channels_of_item),
      arg(grad_input),
      arg_in(gradient));
}

template <int kSpatial>
void grid_backward_blocks(const Options& options,
                          const Tensor& gradient,
                          const Tensor& image,
                          const Tensor& grid,
                          const Tensor& grad_grid) {
  const int64_t blocks =
      ceil_div(gradient[0][0].numel(), pixels_of_block<kSpatial>(options));
  run_blocks<kSpatial>(sources::grid_sampler_planes_backward,
                       "grid_sampler_grid_backward_planes",
                       options,
                       range(blocks, image.size(0), 1, 1),
                       image,
                       grid,
                       gradient,
                       arg(grad_grid),
                       arg_in(gradient),
                       arg_in(image));
}

// The image as kernels for CPUs read it, or nothing where they do not.
template <int kSpatial>
std::optional<Tensor> image_of_blocks(const Options& options,
                                      const Tensor& image,
                                      const Tensor& grid,
                                      bool takes_pixels) {
  if (!goes_by_blocks(image, grid)) {
    return std::nullopt;
  }
  if (takes_pixels && has_pixels(image)) {
    return image;
  }
  if (image.size(-1) < kTaps[options.interpolation_mode]) {
    return std::nullopt;
  }
  // copy: several elements are made of each
  return has_rows(image) ? image : image.clone(at::MemoryFormat::Contiguous);
}

template <int kSpatial>
Tensor grid_sampler(const Tensor& input,
                    const Tensor& given_grid,
                    int64_t interpolation_mode,
                    int64_t padding_mode,
                    bool align_corners) {
  const Options options{interpolation_mode, padding_mode, align_corners};
  check_arguments<kSpatial>(input, given_grid, options);
  const Tensor out =
      at::empty(out_sizes<kSpatial>(input, given_grid), input.options());
  if (out.numel() == 0) {
    return out;
  }
  const Tensor grid = grid_of_blocks(given_grid);
  if (const auto image =
          image_of_blocks<kSpatial>(options, input, grid, true)) {
    forward_blocks<kSpatial>(options, *image, grid, out);
  } else {
    run<kSpatial>("grid_sampler_forward",
                  options,
                  range(out[0][0].numel(), out.size(0), kWorkGroup, 1),
                  geometry_of<kSpatial>(input, grid, out),
                  grid,
                  out,
                  input);
  }
  return out;
}

// Of all positions' gradients.
template <int kSpatial>
int64_t target_count(const Options& options, const Tensor& gradient) {
  const int64_t taps = kTaps[options.interpolation_mode];
  const int64_t of_position = taps * taps * (kSpatial == 3 ? taps : 1);
  return gradient.numel() / gradient.size(1) * of_position;
}

template <int kSpatial>
void image_backward_pixels(const Options& options,
                           const GridSamplerGeometry& geometry,
                           const Tensor& gradient,
                           const Tensor& grid,
                           const Tensor& grad_input) {
  const PixelTargets targets =
      empty_targets(grad_input, target_count<kSpatial>(options, gradient));
  run<kSpatial>("grid_sampler_targets",
                options,
                range(gradient[0][0].numel(), gradient.size(0), kWorkGroup, 1),
                geometry,
                grid,
                targets.pixels,
                targets.weights);
  sum_pixels(grad_input, gradient, targets);
}

template <int kSpatial>
std::tuple<Tensor, Tensor> grid_sampler_backward(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& given_grid,
    int64_t interpolation_mode,
    int64_t padding_mode,
    bool align_corners,
    std::array<bool, 2> output_mask) {
  const Options options{interpolation_mode, padding_mode, align_corners};
  check_arguments<kSpatial>(input, given_grid, options);
  const Tensor grid = grid_of_blocks(given_grid);
  const Tensor gradient = gradient_of_blocks(grad_output);
  const GridSamplerGeometry geometry =
      geometry_of<kSpatial>(input, grid, gradient);
  const bool is_empty = gradient.numel() == 0;
  Tensor grad_input;
  if (output_mask[0]) {
    // Planes are summed in the type of arithmetic.
    grad_input =
        at::empty(input.sizes(),
                  input.options().dtype(compute_type(input.scalar_type())));
    if (is_empty) {
      grad_input.zero_();
    } else if (goes_by_blocks(grad_input, grid)) {
      image_backward_blocks<kSpatial>(options, gradient, grid, grad_input);
    } else if (goes_by_pixels(grad_input,
                              target_count<kSpatial>(options, gradient))) {
      image_backward_pixels<kSpatial>(
          options, geometry, gradient, grid, grad_input);
    } else {
      run<kSpatial>("grid_sampler_image_backward",
                    options,
                    range(input.size(0) * input.size(1), kWorkGroup),
                    geometry,
                    grid,
                    grad_input,
                    gradient);
    }
    grad_input = grad_input.to(input.scalar_type());
  }
  Tensor grad_grid;
  if (output_mask[1]) {
    grad_grid = at::empty(grid.sizes(), grid.options());
    if (is_empty || kTaps[options.interpolation_mode] == 1) {
      grad_grid.zero_();
    } else if (const auto image =
                   image_of_blocks<kSpatial>(options, input, grid, false)) {
      grid_backward_blocks<kSpatial>(
          options, gradient, *image, grid, grad_grid);
    } else {
      run<kSpatial>(
          "grid_sampler_grid_backward",
          options,
          range(gradient[0][0].numel(), gradient.size(0), kWorkGroup, 1),
          geometry,
          grid,
          grad_grid,
          gradient,
          input);
    }
  }
  return {grad_input, grad_grid};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::grid_sampler_2d, &grid_sampler<2>>(m);
  native<at::_ops::grid_sampler_3d, &grid_sampler<3>>(m);
  native<at::_ops::grid_sampler_2d_backward, &grid_sampler_backward<2>>(m);
  native<at::_ops::grid_sampler_3d_backward, &grid_sampler_backward<3>>(m);
}

}  // namespace torch_opencl::ops
