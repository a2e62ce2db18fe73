// grid_sampler_2d and grid_sampler_3d, with gradients.
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "kernel_sources.h"

#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int kWorkGroup = 64;

// geometry_t of grid_sampler.cl.
struct Geometry {
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
  TORCH_CHECK(input.scalar_type() == grid.scalar_type(),
              "grid_sampler(): expected input and grid to have the same dtype, "
              "but input has ",
              input.scalar_type(),
              " and grid has ",
              grid.scalar_type());
}

template <int kSpatial>
Geometry geometry_of(const Tensor& image,
                     const Tensor& grid,
                     const Tensor& out) {
  Geometry geometry{};
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

template <int kSpatial, class... Tensors>
void run(const char* kernel,
         const Options& options,
         const NDRange& work,
         const Geometry& geometry,
         const Tensor& grid,
         const Tensors&... tensors) {
  launch(grid,
         sources::grid_sampler,
         kernel,
         {{"DTYPE", dtype_of(grid)},
          {"INTERPOLATION", options.interpolation_mode},
          {"PADDING", options.padding_mode},
          {"ALIGN_CORNERS", options.align_corners},
          {"SPATIAL", kSpatial},
          {"WG_SIZE", kWorkGroup}},
         work,
         geometry,
         arg(tensors)...,
         arg(grid));
}

template <int kSpatial>
std::vector<int64_t> out_sizes(const Tensor& input, const Tensor& grid) {
  std::vector<int64_t> sizes{input.size(0), input.size(1)};
  for (int axis = 0; axis < kSpatial; ++axis) {
    sizes.push_back(grid.size(1 + axis));
  }
  return sizes;
}

template <int kSpatial>
Tensor grid_sampler(const Tensor& input,
                    const Tensor& grid,
                    int64_t interpolation_mode,
                    int64_t padding_mode,
                    bool align_corners) {
  const Options options{interpolation_mode, padding_mode, align_corners};
  check_arguments<kSpatial>(input, grid, options);
  const Tensor out =
      at::empty(out_sizes<kSpatial>(input, grid), input.options());
  if (out.numel() > 0) {
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

template <int kSpatial>
std::tuple<Tensor, Tensor> grid_sampler_backward(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& grid,
    int64_t interpolation_mode,
    int64_t padding_mode,
    bool align_corners,
    std::array<bool, 2> output_mask) {
  const Options options{interpolation_mode, padding_mode, align_corners};
  check_arguments<kSpatial>(input, grid, options);
  const Geometry geometry = geometry_of<kSpatial>(input, grid, grad_output);
  const bool is_empty = grad_output.numel() == 0;
  Tensor grad_input;
  if (output_mask[0]) {
    // Planes are summed in the type of arithmetic.
    grad_input =
        at::empty(input.sizes(),
                  input.options().dtype(compute_type(input.scalar_type())));
    if (is_empty) {
      grad_input.zero_();
    } else {
      run<kSpatial>("grid_sampler_image_backward",
                    options,
                    range(input.size(0) * input.size(1), kWorkGroup),
                    geometry,
                    grid,
                    grad_input,
                    grad_output);
    }
    grad_input = grad_input.to(input.scalar_type());
  }
  Tensor grad_grid;
  if (output_mask[1]) {
    grad_grid = at::empty(grid.sizes(), grid.options());
    if (is_empty) {
      grad_grid.zero_();
    } else {
      run<kSpatial>(
          "grid_sampler_grid_backward",
          options,
          range(grad_output[0][0].numel(), grad_output.size(0), kWorkGroup, 1),
          geometry,
          grid,
          grad_grid,
          grad_output,
          input);
    }
  }
  return {grad_input, grad_grid};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("grid_sampler_2d", TORCH_FN(grid_sampler<2>));
  m.impl("grid_sampler_3d", TORCH_FN(grid_sampler<3>));
  m.impl("grid_sampler_2d_backward", TORCH_FN(grid_sampler_backward<2>));
  m.impl("grid_sampler_3d_backward", TORCH_FN(grid_sampler_backward<3>));
}

}  // namespace torch_opencl::ops
