// Convolutions of gpu-class devices as products whose right operand is made of
// the image while it is loaded (product_image.clh): no columns in memory.
// Groups are the product's batch.
#include "../gemm/product_gpu.h"
#include "convolution.h"

#include <numeric>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;
using Four = ProductImage::Four;

namespace {

int64_t count_of(const Spatial& s) {
  return s[0] * s[1] * s[2];
}

Four four(const Spatial& s, int64_t last = 0) {
  return {static_cast<int32_t>(s[0]),
          static_cast<int32_t>(s[1]),
          static_cast<int32_t>(s[2]),
          static_cast<int32_t>(last)};
}

Spatial strides_of(const Tensor& t) {
  return {t.stride(2), t.stride(3), t.stride(4)};
}

Spatial scaled(const Spatial& a, const Spatial& b) {
  return {a[0] * b[0], a[1] * b[1], a[2] * b[2]};
}

// What is counted, z, y, x: pixels or filter elements, how far apart they are
// in memory, and whether they follow each other there.
struct Grid {
  Spatial sizes;
  Spatial strides;

  int64_t count() const { return count_of(sizes); }
  bool is_dense() const {
    int64_t expected = 1;
    for (size_t d = 3; d-- > 0;) {
      if (sizes[d] != 1 && strides[d] != expected) {
        return false;
      }
      expected *= sizes[d];
    }
    return true;
  }
  bool is_of_fours() const {
    for (size_t d = 0; d < 3; ++d) {
      if (sizes[d] != 1 && strides[d] % 4 != 0) {
        return false;
      }
    }
    return true;
  }
};

// A tensor's elements: grid positions, each `outer` (images, or channels of a
// weight) and lines of the product.
struct Side {
  BufferView view;
  Grid grid;
  int64_t outer;
  int64_t outer_stride;
  int64_t line;
  int64_t line_stride;
  int64_t batch_stride;

  int64_t offset() const { return static_cast<int64_t>(view.offset); }
  bool has_lines_innermost() const { return line_stride == 1 && line > 1; }
  // Four lines follow each other, and so does memory.
  bool has_wide_lines() const {
    return line_stride == 1 && grid.is_of_fours() &&
           are_fours({offset(), line, outer_stride, batch_stride});
  }
  // Four positions do, of one image or channel.
  bool has_wide_grid() const {
    return grid.is_dense() && are_fours({offset(),
                                         grid.count(),
                                         outer_stride,
                                         line_stride,
                                         batch_stride});
  }
  // Four images or channels do.
  bool has_wide_outer() const {
    return outer_stride == 1 && grid.is_of_fours() &&
           are_fours({offset(), outer, line_stride, batch_stride});
  }
  // Positions of all images or channels follow each other.
  bool is_one_line() const {
    return grid.is_dense() && outer_stride == grid.count() &&
           are_fours(
               {offset(), outer * grid.count(), line_stride, batch_stride});
  }
};

// How pixels and filter elements meet in the image.
struct Walk {
  Grid pixels;  // strides unused
  Grid filter;
  Spatial step;
  Spatial origin;
  Spatial element_step;
  Spatial bounds;

  // True where a pixel's filter element may lie outside of the image.
  bool is_checked() const {
    for (size_t d = 0; d < 3; ++d) {
      const int64_t pixels_reach = (pixels.sizes[d] - 1) * step[d];
      const int64_t filter_reach = (filter.sizes[d] - 1) * element_step[d];
      if (origin[d] + std::min<int64_t>(filter_reach, 0) < 0 ||
          origin[d] + pixels_reach + std::max<int64_t>(filter_reach, 0) >=
              bounds[d]) {
        return true;
      }
    }
    return false;
  }
  bool is_flat() const {
    return bounds[0] == 1 && pixels.sizes[0] == 1 && filter.sizes[0] == 1 &&
           origin[0] == 0;
  }
  // Pixels are the image's own.
  bool is_identity() const {
    return filter.count() == 1 && !is_checked() && pixels.sizes == bounds;
  }
};

struct ImageProduct {
  bool is_weight_gradient;
  int64_t groups;
  int64_t channels;  // of a group
  int64_t images;
  Walk walk;
  Tensor image;
  Side left;
  Side out;
  Addend addend;
  std::optional<EpilogueTarget> target{};

  bool is_channels_last() const {
    return image.stride(1) == 1 && image.size(1) > 1;
  }
  bool has_channels_innermost() const {
    return walk.filter.count() == 1 || is_channels_last();
  }
};

// The image as right operand: lines are images, the outer ones channels.
Side right_side_of(const ImageProduct& c) {
  return {arg_in(c.image),
          {c.walk.bounds, strides_of(c.image)},
          c.channels,
          c.image.stride(1),
          c.images,
          c.image.stride(0),
          c.channels * c.image.stride(1)};
}

OperandAccess right_access_of(const ImageProduct& c, const Side& right) {
  const bool is_channels_last = c.is_channels_last();
  // By channels, or by pixels of an unpacked image.
  const bool is_wide =
      is_channels_last
          ? right.outer_stride == 1 && right.grid.is_of_fours() &&
                are_fours({right.offset(), c.channels, right.line_stride})
          : c.walk.is_identity() && right.has_wide_grid();
  return {is_channels_last == c.is_weight_gradient, is_wide};
}

OperandAccess left_access_of(const ImageProduct& c) {
  const Side& left = c.left;
  const bool is_line = left.has_lines_innermost();
  if (c.is_weight_gradient) {
    return {is_line, is_line ? left.has_wide_lines() : left.has_wide_grid()};
  }
  return {is_line,
          is_line                      ? left.has_wide_lines()
          : c.has_channels_innermost() ? left.has_wide_outer()
                                       : left.is_one_line()};
}

OutputAccess output_access_of(const ImageProduct& c) {
  const Side& out = c.out;
  if (c.is_weight_gradient) {
    return {
        c.has_channels_innermost() ? out.has_wide_outer() : out.is_one_line(),
        false};
  }
  const bool is_line = out.has_lines_innermost();
  return {is_line ? out.has_wide_lines() : out.has_wide_grid(), is_line};
}

ProductImage product_image_of(const ImageProduct& c) {
  const Walk& walk = c.walk;
  const bool has_channels_innermost = c.has_channels_innermost();
  return {.is_weight_gradient = c.is_weight_gradient,
          .has_channels_innermost = has_channels_innermost,
          .is_checked = walk.is_checked(),
          .is_flat = walk.is_flat(),
          .pixel_sizes = four(walk.pixels.sizes),
          .element_size =
              four(walk.filter.sizes,
                   has_channels_innermost ? c.channels : walk.filter.count()),
          .step = four(walk.step),
          .origin = four(walk.origin),
          .element_step = four(walk.element_step),
          .bounds = four(walk.bounds),
          .image_strides = four(strides_of(c.image), c.image.stride(0)),
          .channel_stride = static_cast<int32_t>(c.image.stride(1)),
          .left_strides = four(c.left.grid.strides, c.left.outer_stride),
          .out_strides = four(c.out.grid.strides, c.out.outer_stride)};
}

void run(const ImageProduct& c) {
  const int64_t all_elements = c.channels * c.walk.filter.count();
  const int64_t all_pixels = c.images * c.walk.pixels.count();
  const int64_t columns = c.is_weight_gradient ? all_elements : all_pixels;
  const Side right = right_side_of(c);
  const ProductImage image = product_image_of(c);
  launch_product(
      c.image,
      {.operands = c.image.scalar_type(),
       .product = {c.groups,
                   c.left.line,
                   columns,
                   c.is_weight_gradient ? all_pixels : all_elements},
       .left = {c.left.view,
                level(c.left.line, c.left.line_stride),
                0,
                c.left.batch_stride,
                c.left.line},
       .right = {right.view, level(columns, 0), 0, right.batch_stride, columns},
       .left_access = left_access_of(c),
       .right_access = right_access_of(c, right),
       .output = {c.out.view,
                  c.out.line_stride,
                  level(columns, 0),
                  c.out.batch_stride},
       .output_access = output_access_of(c),
       .addend = c.addend,
       .is_large = false,
       .image = &image,
       .target = c.target ? &*c.target : nullptr});
}

// Of a weight: lines are its dimension `line`, the other one the outer.
Side side_of_weight(const ConvolutionProblem& p,
                    const Tensor& weight,
                    int line) {
  const int64_t rows = p.out_channels / p.groups;
  const int64_t channels = p.channels / p.groups;
  return {arg(weight),
          {p.kernel, strides_of(weight)},
          line == 0 ? channels : rows,
          weight.stride(1 - line),
          line == 0 ? rows : channels,
          weight.stride(line),
          rows * weight.stride(0)};
}

// Of an image: lines are the channels of a group.
Side side_of_image(const ConvolutionProblem& p, const Tensor& image) {
  const int64_t channels = image.size(1) / p.groups;
  return {arg(image),
          {{image.size(2), image.size(3), image.size(4)}, strides_of(image)},
          p.images,
          image.stride(0),
          channels,
          image.stride(1),
          channels * image.stride(1)};
}

Walk walk_of(const ConvolutionProblem& p) {
  return {{p.output, {}},
          {p.kernel, {}},
          p.stride,
          {-p.padding[0], -p.padding[1], -p.padding[2]},
          p.dilation,
          p.input};
}

// Along one dimension, the image positions that leave one remainder by the
// stride, and the filter elements that they meet: every `element_stride`-th
// from `element` on.
struct Remainder {
  int64_t positions;
  int64_t filter_size;
  int64_t element;
  int64_t element_stride;
  int64_t origin;
  int64_t element_step;
};

Remainder remainder_of(const ConvolutionProblem& p, size_t d, int64_t first) {
  const int64_t stride = p.stride[d], dilation = p.dilation[d];
  const int64_t reach = first + p.padding[d];
  Remainder r{ceil_div(std::max<int64_t>(p.input[d] - first, 0), stride),
              0,
              0,
              stride / std::gcd(stride, dilation),
              0,
              0};
  while (r.element < r.element_stride &&
         (reach - r.element * dilation) % stride != 0) {
    ++r.element;
  }
  if (r.element < r.element_stride && r.element < p.kernel[d]) {
    r.filter_size = ceil_div(p.kernel[d] - r.element, r.element_stride);
    r.origin = (reach - r.element * dilation) / stride;
    r.element_step = -r.element_stride * dilation / stride;
  }
  return r;
}

using Remainders = std::array<Remainder, 3>;

// Writes the data gradient's positions of these remainders, which are all of
// them where it `is_whole`.
void run_data_product(const ConvolutionProblem& p,
                      const ConvolutionArguments& a,
                      const Remainders& r,
                      bool is_whole) {
  const auto all = [&r](int64_t Remainder::*member) {
    return Spatial{r[0].*member, r[1].*member, r[2].*member};
  };
  Side weight = side_of_weight(p, a.weight, 1);
  weight.view = arg_in(a.weight);
  Side image = side_of_image(p, a.input);
  for (size_t d = 0; d < 3; ++d) {
    weight.view.offset += r[d].element * weight.grid.strides[d];
    // The remainder is what the origin was made of.
    const int64_t first = (r[d].origin * p.stride[d] - p.padding[d]) +
                          r[d].element * p.dilation[d];
    image.view.offset += first * image.grid.strides[d];
  }
  weight.grid = {all(&Remainder::filter_size),
                 scaled(weight.grid.strides, all(&Remainder::element_stride))};
  image.grid = {all(&Remainder::positions),
                scaled(image.grid.strides, p.stride)};
  run({.is_weight_gradient = false,
       .groups = p.groups,
       .channels = p.out_channels / p.groups,
       .images = p.images,
       .walk = {{image.grid.sizes, {}},
                {weight.grid.sizes, {}},
                {1, 1, 1},
                all(&Remainder::origin),
                all(&Remainder::element_step),
                p.output},
       .image = a.output,
       .left = weight,
       .out = image,
       .addend = {},
       .target = is_whole ? std::optional(EpilogueTarget{"convolution_backward",
                                                         a.input,
                                                         {a.output, a.weight},
                                                         true})
                          : std::nullopt});
}

}  // namespace

bool supports_implicit(const ConvolutionProblem& p,
                       const runtime::DeviceInfo& device) {
  return device.device_class == runtime::DeviceClass::kGpu && !p.is_large &&
         fits_int32(p.out_channels * p.depth()) &&
         fits_int32(p.images * std::max(p.pixels(), count_of(p.input)));
}

bool prefers_implicit_data(const ConvolutionProblem& p,
                           const runtime::DeviceInfo& device) {
  return !supports_winograd(p, device) || !prefers_winograd(p, device);
}

void implicit_forward(const ConvolutionProblem& p,
                      const ConvolutionArguments& a) {
  Side weight = side_of_weight(p, a.weight, 0);
  weight.view = arg_in(a.weight);
  if (a.rotates_filter) {
    for (size_t d = 0; d < 3; ++d) {
      int64_t& stride = weight.grid.strides[d];
      weight.view.offset += (p.kernel[d] - 1) * stride;
      stride = -stride;
    }
  }
  run({.is_weight_gradient = false,
       .groups = p.groups,
       .channels = p.channels / p.groups,
       .images = p.images,
       .walk = walk_of(p),
       .image = a.input,
       .left = weight,
       .out = side_of_image(p, a.output),
       .addend = bias_of(a, p.out_channels / p.groups),
       .target = EpilogueTarget{
           "convolution", a.output, {a.input, a.weight, a.bias}, true}});
}

void implicit_backward_weight(const ConvolutionProblem& p,
                              const ConvolutionArguments& a) {
  Side grad = side_of_image(p, a.output);
  grad.view = arg_in(a.output);
  run({.is_weight_gradient = true,
       .groups = p.groups,
       .channels = p.channels / p.groups,
       .images = p.images,
       .walk = walk_of(p),
       .image = a.input,
       .left = grad,
       .out = side_of_weight(p, a.weight, 0),
       .addend = {}});
}

void implicit_backward_data(const ConvolutionProblem& p,
                            const ConvolutionArguments& a) {
  std::vector<Remainders> products;
  bool has_untouched = false;
  for (int64_t i = 0; i < count_of(p.stride); ++i) {
    const Remainders r{remainder_of(p, 0, i / (p.stride[1] * p.stride[2])),
                       remainder_of(p, 1, i / p.stride[2] % p.stride[1]),
                       remainder_of(p, 2, i % p.stride[2])};
    if (r[0].positions * r[1].positions * r[2].positions == 0) {
      continue;
    }
    if (r[0].filter_size * r[1].filter_size * r[2].filter_size == 0) {
      has_untouched = true;
    } else {
      products.push_back(r);
    }
  }
  if (has_untouched) {
    a.input.zero_();
  }
  const bool is_whole = products.size() == 1 && !has_untouched;
  for (const Remainders& r : products) {
    run_data_product(p, a, r, is_whole);
  }
}

}  // namespace torch_opencl::ops
