// Convolutions that read images with innermost channels unpacked; other images
// are copied to that format first.
#include "../../cpp/aten/factories.h"
#include "../common/non_temporal.h"
#include "chunks.h"
#include "kernel_sources.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

// Images of fewer channels are copied with their borders, so that the filter
// elements of a row follow each other too.
constexpr int64_t kFewChannels = 16;
// Pixels of images whose parts stay in a core's cache while a weight's gradient
// sums them.
constexpr int64_t kPixelsAtOnce = 4096;

// Columns of a tile: no more than vectors of so many channels.
int64_t width_of(const Tensor& on, int64_t columns) {
  return std::min(round_up(columns, 16), right_width(on, columns));
}

// No problem here is large.
ScalarArgument stride_argument(int64_t stride) {
  return index_argument(stride, false);
}

Vector4 size_of(const Tensor& image) {
  return vector4({image.size(2), image.size(3), image.size(4)});
}

// out[o] = sum of filter elements t of panels[first_element + t * element_step]
// * image[o * step + origin + t * dilation], in elements of `run`.
struct DirectProduct {
  Spatial filter;
  Spatial step;
  Spatial origin;
  Spatial dilation;
  int64_t run;
  int64_t panel_elements;
  int64_t first_element;
  Spatial element_step;
};

void multiply_directly(const Tensor& image,
                       const Tensor& panels,
                       const Tensor& bias,
                       const Tensor& out,
                       const DirectProduct& product) {
  const int64_t rows = out.size(0) * out.size(2) * out.size(3) * out.size(4);
  const int64_t columns = out.size(1);
  const int64_t height = left_width(out, rows);
  const int64_t row_tiles = ceil_div(rows, height);
  const int64_t width = width_of(out, columns);
  const int64_t tiles = row_tiles * ceil_div(columns, width);
  const int64_t at_once = tiles_at_once(
      out, tiles, 1, height * width * product.run * product.panel_elements);
  const Tensor zeros = at::zeros({product.run}, image.options());
  launch(out,
         sources::direct,
         "direct_cpu",
         {{"DTYPE", dtype_of(out)},
          {"LANES", 16},
          {"ROWS", height},
          {"ROWS_AT_ONCE", rows_at_once(out, height)},
          {"COLUMNS", width},
          {"NON_TEMPORAL",
           is_non_temporal(
               aten::device_of(out), out.scalar_type(), rows * columns)}},
         range(ceil_div(tiles, at_once), 1, 1, 1),
         arg_in(image),
         arg_in(zeros),
         arg_in(panels),
         bias.defined() ? arg_in(bias) : arg_in(zeros),
         arg(out),
         static_cast<int32_t>(rows),
         static_cast<int32_t>(columns),
         static_cast<int32_t>(product.run),
         size_of(image),
         size_of(out),
         vector4(product.filter),
         vector4(product.step),
         vector4(product.origin),
         vector4(product.dilation),
         stride_argument(image.stride(0)),
         stride_argument(image.stride(2)),
         stride_argument(image.stride(3)),
         stride_argument(image.stride(4)),
         stride_argument(out.stride(0)),
         stride_argument(out.stride(2)),
         stride_argument(out.stride(3)),
         stride_argument(out.stride(4)),
         stride_argument(out.stride(1)),
         static_cast<int32_t>(product.panel_elements),
         static_cast<int32_t>(product.first_element),
         vector4(product.element_step),
         static_cast<int32_t>(bias.defined()),
         stride_argument(bias.defined() ? bias.stride(0) : 0),
         static_cast<int32_t>(at_once),
         static_cast<int32_t>(std::min(row_tiles, kRowTilesOfStrip)));
}

// Panels of the weight whose rows are its dimension `row`, filter element by
// filter element.
Tensor pack_elements(const ConvolutionProblem& p,
                     const Tensor& weight,
                     int row) {
  const Tensor filter = with_pixel_stride(weight);
  const int depth = 1 - row;
  return pack_kept(
      filter,
      0,
      {{},
       level(filter.size(row), filter.stride(row)),
       {filter.size(depth), filter.stride(4), filter.stride(depth)},
       0},
      1,
      filter.size(row),
      p.filter_size() * filter.size(depth),
      width_of(weight, filter.size(row)));
}

bool has_few_channels(const ConvolutionProblem& p) {
  return p.channels < kFewChannels && p.dilation[2] == 1;
}

// Filter elements whose row is a long run although channels are few.
bool has_long_rows(const ConvolutionProblem& p) {
  return has_few_channels(p) && p.kernel[2] >= 7;
}

// The image between its zeros, channels last.
Tensor with_borders(const ConvolutionProblem& p, const Tensor& image) {
  std::vector<int64_t> sizes = image.sizes().vec();
  bool has_borders = false;
  for (size_t d = 0; d < p.padding.size(); ++d) {
    sizes[d + 2] += 2 * p.padding[d];
    has_borders = has_borders || p.padding[d] > 0;
  }
  // Vectors that begin in the last pixel end behind it.
  std::vector<int64_t> strides = c10::get_channels_last_strides_3d(sizes);
  const int64_t elements = c10::multiply_integers(sizes);
  const Tensor room = at::empty({elements + 16}, image.options());
  const Tensor bordered = room.as_strided(sizes, strides);
  Tensor inner = bordered;
  for (size_t d = 0; d < p.padding.size(); ++d) {
    inner = inner.narrow(d + 2, p.padding[d], image.size(d + 2));
  }
  if (has_borders) {
    room.zero_();
  }
  inner.copy_(image);
  return bordered;
}

Tensor with_channels_last(const Tensor& image) {
  if (image.stride(1) == 1) {
    return image;
  }
  // copy: the product's rows run along the channels
  return image.contiguous(at::MemoryFormat::ChannelsLast3d);
}

// A gradient of outputs as left operand: output channels by pixels.
struct GradientRows {
  Tensor values;
  bool in_place;
  int64_t row_stride;
  int64_t image_stride;
  int64_t pixel_stride;
};

// In panels of `height` output channels, or unpacked: a tile's pieces are then
// half a line each, and packing pays where they are read often.
GradientRows gradient_rows_of(const ConvolutionProblem& p,
                              const Tensor& grad,
                              int64_t height,
                              int64_t readers) {
  if (grad.stride(1) == 1 && p.out_channels >= height && readers <= 2) {
    return {grad, true, 1, grad.stride(0), grad.stride(4)};
  }
  const int64_t pixels = p.images * p.pixels();
  return {pack(grad,
               {arg(grad),
                level(p.out_channels, grad.stride(1)),
                pixels_of(p, grad),
                0},
               1,
               p.out_channels,
               pixels,
               height,
               false),
          false,
          pixels,
          p.pixels() * height,
          height};
}

// A product of whole tiles of `rows` pixels.
bool is_product(const ConvolutionProblem& p,
                const runtime::DeviceInfo& device,
                int64_t rows) {
  return device.device_class == runtime::DeviceClass::kCpu &&
         compute_type(p.dtype) == p.dtype && p.groups == 1 && !p.is_large &&
         rows >= kFewestRows;
}

}  // namespace

bool supports_direct(const ConvolutionProblem& p,
                     const runtime::DeviceInfo& device) {
  return is_product(p, device, p.images * p.pixels());
}

// Elsewhere the image is copied: that pays for several filter elements of long
// runs.
bool prefers_direct(const ConvolutionProblem& p, const runtime::DeviceInfo&) {
  return p.is_channels_last ||
         (p.filter_size() > 1 &&
          (p.channels >= kFewChannels || has_long_rows(p)));
}

void direct_forward(const ConvolutionProblem& p,
                    const ConvolutionArguments& a) {
  const int64_t rows = p.kernel[1] * p.kernel[2];
  const int64_t direction = a.rotates_filter ? -1 : 1;
  DirectProduct product{
      .filter = p.kernel,
      .step = p.stride,
      .origin = {-p.padding[0], -p.padding[1], -p.padding[2]},
      .dilation = p.dilation,
      .run = p.channels,
      .panel_elements = p.filter_size(),
      .first_element = a.rotates_filter ? p.filter_size() - 1 : 0,
      .element_step = {direction * rows, direction * p.kernel[2], direction}};
  Tensor image;
  if (has_few_channels(p) && !a.rotates_filter) {
    image = with_borders(p, a.input);
    product.origin = {0, 0, 0};
    product.run *= p.kernel[2];
    product.filter[2] = 1;
    product.panel_elements /= p.kernel[2];
    product.element_step = {p.kernel[1], 1, 0};
  } else {
    image = with_channels_last(a.input);
  }
  multiply_directly(
      image, pack_elements(p, a.weight, 0), a.bias, a.output, product);
}

bool supports_direct_data(const ConvolutionProblem& p,
                          const runtime::DeviceInfo& device) {
  int64_t rows = p.images;  // of the smallest class
  for (size_t d = 0; d < p.stride.size(); ++d) {
    rows *= p.input[d] / p.stride[d];
  }
  return is_product(p, device, rows) && p.dilation == Spatial{1, 1, 1};
}

bool prefers_direct_data(const ConvolutionProblem& p,
                         const runtime::DeviceInfo&) {
  return p.is_channels_last ||
         (p.filter_size() > 1 && p.channels >= kFewChannels);
}

// Input pixels of one remainder by the stride meet the same filter elements, at
// output pixels that follow each other.
void direct_backward_data(const ConvolutionProblem& p,
                          const ConvolutionArguments& a) {
  const Tensor grad = with_channels_last(a.output);
  const Tensor panels = pack_elements(p, a.weight, 1);
  const Spatial element_size{p.kernel[1] * p.kernel[2], p.kernel[2], 1};
  const int64_t classes = p.stride[0] * p.stride[1] * p.stride[2];
  for (int64_t index = 0; index < classes; ++index) {
    DirectProduct product{.step = {1, 1, 1},
                          .dilation = {1, 1, 1},
                          .run = p.out_channels,
                          .panel_elements = p.filter_size(),
                          .first_element = 0};
    Tensor image = a.input;
    int64_t rest = index;
    for (size_t d = 0; d < p.stride.size(); ++d) {
      const int64_t stride = p.stride[d];
      const int64_t remainder = rest % stride;
      rest /= stride;
      const int64_t first = (remainder + p.padding[d]) % stride;
      const int64_t filter =
          ceil_div(std::max<int64_t>(p.kernel[d] - first, 0), stride);
      product.filter[d] = filter;
      product.origin[d] = (remainder + p.padding[d]) / stride - (filter - 1);
      product.first_element +=
          (first + stride * (filter - 1)) * element_size[d];
      product.element_step[d] = -stride * element_size[d];
      image = image.slice(d + 2, remainder, std::nullopt, stride);
    }
    multiply_directly(grad, panels, Tensor(), image, product);
  }
}

// Vectors of the image are read whole: of at least a tile's elements, or of
// ones with borders, behind which there is room.
bool supports_direct_weight(const ConvolutionProblem& p,
                            const runtime::DeviceInfo& device) {
  return supports_direct(p, device) &&
         (p.channels >= 48 || p.channels == 32 || p.channels == 16 ||
          has_few_channels(p));
}

// Each eight output channels read the image again, pixel by pixel: many are
// better served by columns. Those of lines and volumes are many and short runs:
// there even a copy of the image pays, where its channels fill tiles.
bool prefers_direct_weight(const ConvolutionProblem& p,
                           const runtime::DeviceInfo&) {
  if (p.is_channels_last) {
    return p.out_channels <= 192;
  }
  const bool is_volume = p.input[0] > 1 || p.kernel[0] > 1;
  const bool is_line = !is_volume && p.input[1] == 1 && p.kernel[1] == 1;
  const int64_t padded = p.channels == 16 ? 16
                                          : std::min(round_up(p.channels, 32),
                                                     round_up(p.channels, 48));
  return has_long_rows(p) || ((is_volume || is_line) && p.filter_size() > 1 &&
                              p.out_channels <= 256 &&
                              p.images * p.pixels() >= 2 * p.out_channels &&
                              padded <= p.channels + p.channels / 8);
}

void direct_backward_weight(const ConvolutionProblem& p,
                            const ConvolutionArguments& a) {
  const bool has_few = has_few_channels(p);
  const Tensor all_images =
      has_few ? with_borders(p, a.input) : with_channels_last(a.input);
  const int64_t merged = has_few ? p.kernel[2] : 1;
  const int64_t run = p.channels * merged;
  Spatial kernel = p.kernel;
  kernel[2] /= merged;
  const auto add_chunk = [&](const Chunk& chunk) {
    const Tensor& grad = chunk.output;
    const Tensor& image = chunk.input;
    const int64_t width = width_of(grad, run);
    const int64_t height = left_width(grad, p.out_channels);
    const int64_t readers = p.filter_size() / merged * ceil_div(run, width);
    const GradientRows left =
        gradient_rows_of(chunk.problem, grad, height, readers);
    launch(grad,
           sources::direct_weight,
           "direct_weight_cpu",
           {{"DTYPE", dtype_of(grad)},
            {"LANES", 16},
            {"ROWS", height},
            {"ROWS_AT_ONCE", rows_at_once(grad, height)},
            {"COLUMNS", width},
            {"IN_PLACE", left.in_place}},
           range(ceil_div(p.out_channels, height), readers, 1, 1),
           arg_in(left.values),
           stride_argument(left.row_stride),
           stride_argument(left.image_stride),
           stride_argument(left.pixel_stride),
           arg_in(image),
           arg(a.weight),
           static_cast<int32_t>(p.out_channels),
           static_cast<int32_t>(run),
           static_cast<int32_t>(chunk.problem.images),
           size_of(image),
           vector4(p.output),
           vector4(kernel),
           vector4(p.stride),
           vector4(has_few ? Spatial{0, 0, 0} : p.padding),
           vector4(p.dilation),
           stride_argument(image.stride(0)),
           stride_argument(image.stride(2)),
           stride_argument(image.stride(3)),
           stride_argument(image.stride(4)),
           static_cast<int32_t>(p.channels),
           stride_argument(a.weight.stride(0)),
           stride_argument(a.weight.stride(1)),
           stride_argument(a.weight.stride(4)),
           static_cast<int32_t>(!chunk.is_first));
  };
  for_each_chunk(p,
                 all_images,
                 with_pixel_stride(a.output),
                 std::max<int64_t>(kPixelsAtOnce / p.pixels(), 1),
                 add_chunk);
}

}  // namespace torch_opencl::ops
