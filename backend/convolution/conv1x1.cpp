// 1x1 convolutions: input and output are the product's operands, read where
// they lie or packed from there, without columns.
#include "chunks.h"

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

// Panels of a weight whose rows are its dimension `row`.
Tensor pack_weight(const ConvolutionProblem& p,
                   const Tensor& weight,
                   int row,
                   int64_t width) {
  const int64_t rows = p.out_channels / p.groups;
  const int64_t channels = p.channels / p.groups;
  const Levels out = level(rows, weight.stride(0));
  const Levels in = level(channels, weight.stride(1));
  return pack_kept(
      weight,
      0,
      {{}, row == 0 ? out : in, row == 0 ? in : out, rows * weight.stride(0)},
      p.groups,
      row == 0 ? rows : channels,
      row == 0 ? channels : rows,
      width);
}

// Pixels of both that follow each other at one stride, of all images or of one.
int64_t rows_of_pixels(const ConvolutionProblem& p,
                       const Tensor& a,
                       const Tensor& b) {
  const bool is_one_image = a.stride(0) == p.pixels() * a.stride(4) &&
                            b.stride(0) == p.pixels() * b.stride(4);
  return is_one_image ? p.images * p.pixels() : p.pixels();
}

// Panels of an image tensor whose rows are its pixels.
Tensor pack_pixels(const ConvolutionProblem& p,
                   const Tensor& tensor,
                   int64_t channels) {
  return pack(tensor,
              {arg(tensor),
               pixels_of(p, tensor),
               level(channels, tensor.stride(1)),
               channels * tensor.stride(1)},
              p.groups,
              p.images * p.pixels(),
              channels,
              right_width(tensor, p.images * p.pixels()),
              p.is_large);
}

// Panels of an image tensor whose rows are its channels.
Tensor pack_channels(const ConvolutionProblem& p,
                     const Tensor& tensor,
                     int64_t channels,
                     int64_t width) {
  return pack(tensor,
              {arg(tensor),
               level(channels, tensor.stride(1)),
               pixels_of(p, tensor),
               channels * tensor.stride(1)},
              p.groups,
              channels,
              p.images * p.pixels(),
              width,
              p.is_large);
}

void multiply_pixels(const ConvolutionProblem& p,
                     const Tensor& weight,
                     const Tensor& pixels,
                     const Tensor& result,
                     int64_t rows,
                     int64_t depth,
                     const Addend& addend) {
  multiply(result,
           {p.groups, rows, p.images * p.pixels(), depth},
           weight,
           pixels,
           {arg(result),
            result.stride(1),
            pixels_of(p, result),
            rows * result.stride(1)},
           addend,
           p.is_large);
}

// The other operand of a product: a weight whose rows are its dimension `row`.
struct Weight {
  const Tensor& values;
  int row;
};

// Unpacked pixels, as rows of the product.
void multiply_rows_of_pixels(const ConvolutionProblem& p,
                             const Weight& weight,
                             const Tensor& source,
                             const Tensor& result,
                             int64_t columns,
                             int64_t depth,
                             const Addend& addend) {
  const int64_t rows = rows_of_pixels(p, source, result);
  multiply(
      result,
      {.batch = p.images * p.pixels() / rows,
       .rows = rows,
       .columns = columns,
       .depth = depth,
       .in_place = InPlace::kLeft,
       .in_place_stride = source.stride(4),
       .in_place_batch_stride = source.stride(0)},
      source,
      pack_weight(p, weight.values, weight.row, right_width(source, columns)),
      {arg(result), result.stride(4), level(columns, 1), result.stride(0)},
      {.view = addend.view,
       .column_stride = addend.row_stride,
       .alpha = addend.alpha,
       .beta = addend.beta},
      p.is_large);
}

// result = weight * source, for all images.
void multiply_images(const ConvolutionProblem& p,
                     const Weight& weight,
                     const Tensor& images,
                     const Tensor& result,
                     int64_t rows,
                     int64_t depth,
                     Addend addend) {
  const Tensor source = with_pixel_stride(images);
  const bool is_plain = p.groups == 1;
  if (is_plain && source.stride(1) == 1 && result.stride(1) == 1 &&
      is_left_in_place(source, rows_of_pixels(p, source, result))) {
    multiply_rows_of_pixels(p, weight, source, result, rows, depth, addend);
    return;
  }
  const Tensor panels =
      pack_weight(p, weight.values, weight.row, left_width(source, rows));
  if (!is_plain || source.stride(4) != 1 || result.stride(4) != 1 ||
      !is_right_in_place(source, rows, p.pixels(), depth)) {
    for_each_chunk(p,
                   source,
                   result,
                   images_at_once(p, result, p.groups * depth * p.pixels()),
                   [&](const Chunk& chunk) {
                     multiply_pixels(
                         chunk.problem,
                         panels,
                         pack_pixels(chunk.problem, chunk.input, depth),
                         chunk.output,
                         rows,
                         depth,
                         addend);
                   });
    return;
  }
  addend.batch_stride = 0;  // of groups; here a batch is of images
  multiply(
      result,
      {.batch = p.images,
       .rows = rows,
       .columns = p.pixels(),
       .depth = depth,
       .in_place = InPlace::kRight,
       .in_place_stride = source.stride(1),
       .in_place_batch_stride = source.stride(0)},
      panels,
      source,
      {arg(result), result.stride(1), level(p.pixels(), 1), result.stride(0)},
      addend,
      p.is_large);
}

}  // namespace

bool supports_conv1x1(const ConvolutionProblem& p, const runtime::DeviceInfo&) {
  return p.filter_size() == 1 && p.stride == Spatial{1, 1, 1} &&
         p.padding == Spatial{0, 0, 0} &&
         p.input == p.output;  // not where output_padding adds to one
}

void conv1x1_forward(const ConvolutionProblem& p,
                     const ConvolutionArguments& a) {
  const int64_t rows = p.out_channels / p.groups;
  const int64_t depth = p.channels / p.groups;
  multiply_images(
      p, {a.weight, 0}, a.input, a.output, rows, depth, bias_of(a, rows));
}

void conv1x1_backward_data(const ConvolutionProblem& p,
                           const ConvolutionArguments& a) {
  const int64_t rows = p.channels / p.groups;
  const int64_t depth = p.out_channels / p.groups;
  multiply_images(p, {a.weight, 1}, a.output, a.input, rows, depth, {});
}

void conv1x1_backward_weight(const ConvolutionProblem& p,
                             const ConvolutionArguments& a) {
  const int64_t rows = p.out_channels / p.groups;
  const int64_t columns = p.channels / p.groups;
  const int64_t step =
      images_at_once(p, a.weight, (p.channels + p.out_channels) * p.pixels());
  const Tensor sums = sums_for(a.weight, step < p.images, false);
  const Output output{arg(sums),
                      sums.stride(0),
                      level(columns, sums.stride(1)),
                      rows * sums.stride(0)};
  const auto add_chunk = [&](const Chunk& chunk) {
    const ConvolutionProblem& part = chunk.problem;
    const Tensor left =
        pack_channels(part, chunk.output, rows, left_width(sums, rows));
    const Tensor right =
        pack_channels(part, chunk.input, columns, right_width(sums, columns));
    Addend addend;
    if (!chunk.is_first) {
      addend = {output.view,
                output.row_stride,
                output.column.stride,
                output.batch_stride,
                1,
                1};
    }
    multiply(sums,
             {p.groups, rows, columns, part.images * part.pixels()},
             left,
             right,
             output,
             addend,
             p.is_large);
  };
  for_each_chunk(p,
                 with_pixel_stride(a.input),
                 with_pixel_stride(a.output),
                 step,
                 add_chunk);
  if (!sums.is_same(a.weight)) {
    a.weight.copy_(sums);
  }
}

}  // namespace torch_opencl::ops
