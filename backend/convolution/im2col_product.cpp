#include "chunks.h"

#include "../../cpp/aten/factories.h"
#include "../common/lanes.h"
#include "kernel_sources.h"

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

constexpr int64_t kRun = 256;  // RUN of col2im_sum on CPUs

// GEOMETRY of the kernels that know where columns come from.
template <class Function>
void with_geometry(const ConvolutionProblem& p, const Function& function) {
  function(vector4(p.input),
           vector4(p.output),
           vector4(p.kernel),
           vector4(p.stride),
           vector4(p.padding),
           vector4(p.dilation));
}

// The right operand: columns of `input`, with pixels or filter elements as its
// rows.
Tensor pack_columns(const ConvolutionProblem& p,
                    const Tensor& input,
                    bool rows_are_pixels) {
  const bool is_cpu = aten::device_of(input).is_cpu();
  const int64_t all_pixels = p.images * p.pixels();
  const int64_t rows = rows_are_pixels ? all_pixels : p.depth();
  const int64_t depth = rows_are_pixels ? p.depth() : all_pixels;
  const int64_t width = right_width(input, rows);
  Tensor panels = empty_panels(input, p.groups, rows, depth, width);
  const auto stride = [&p](int64_t value) {
    return index_argument(value, p.is_large);
  };
  const size_t count = ceil_div(rows, width);
  with_geometry(p, [&](const auto&... geometry) {
    launch(input,
           sources::im2col_pack,
           is_cpu ? "pack_columns_cpu" : "pack_columns_gpu",
           {{"DTYPE", dtype_of(input)},
            {"LANES", is_cpu ? kLanes : 1},
            {"WIDTH", width},
            {"ROWS_ARE_PIXELS", rows_are_pixels},
            {"INDEX64", p.is_large},
            {is_cpu ? "IS_CPU" : "IS_GPU", 1}},
           is_cpu
               ? range(count, ceil_div(depth, kDepthBlock), p.groups, 1, 1, 1)
               : range(depth * width, count, p.groups, 64, 1, 1),
           arg_in(input),
           arg(panels),
           static_cast<int32_t>(rows),
           static_cast<int32_t>(depth),
           geometry...,
           stride(input.stride(0)),
           stride(input.stride(1)),
           stride(input.stride(2)),
           stride(input.stride(3)),
           stride(input.stride(4)),
           stride(p.channels / p.groups * input.stride(1)),
           stride(extent_of(input)));
  });
  return panels;
}

// Of an image.
int64_t elements_of_columns(const ConvolutionProblem& p) {
  return p.groups * p.depth() * p.pixels();
}

// Writes an image's gradient: the sums of its columns.
void sum_columns(const ConvolutionProblem& p,
                 const Tensor& columns,
                 const Tensor& image) {
  const int64_t run = aten::device_of(image).is_cpu() ? kRun : 1;
  const auto stride = [&p](int64_t value) {
    return index_argument(value, p.is_large);
  };
  with_geometry(p, [&](const auto&... geometry) {
    launch(image,
           sources::col2im_sum,
           "col2im_sum",
           {{"DTYPE", dtype_of(image)}, {"RUN", run}, {"INDEX64", p.is_large}},
           range(ceil_div(p.input[2], run),
                 p.input[0] * p.input[1],
                 p.images * p.channels,
                 1,
                 1,
                 1),
           arg_in(columns),
           arg(image),
           static_cast<int32_t>(p.channels),
           geometry...,
           static_cast<int32_t>(p.images),
           stride(image.stride(0)),
           stride(image.stride(1)),
           stride(image.stride(2)),
           stride(image.stride(3)),
           stride(image.stride(4)));
  });
}

}  // namespace

void im2col_forward(const ConvolutionProblem& p,
                    const ConvolutionArguments& a) {
  const int64_t rows = p.out_channels / p.groups;
  const int64_t depth = p.depth();
  const Tensor weight = with_pixel_stride(a.weight);
  const int64_t element_stride = weight.stride(4);
  const int64_t first_element =
      a.rotates_filter ? (p.filter_size() - 1) * element_stride : 0;
  const Tensor left =
      pack_kept(weight,
                first_element,
                {{},
                 level(rows, weight.stride(0)),
                 {p.filter_size(),
                  weight.stride(1),
                  a.rotates_filter ? -element_stride : element_stride},
                 rows * weight.stride(0)},
                p.groups,
                rows,
                depth,
                left_width(weight, rows));
  const Addend addend = bias_of(a, rows);
  const auto multiply_chunk = [&](const Chunk& chunk) {
    const Tensor& output = chunk.output;
    const int64_t pixels = chunk.problem.images * p.pixels();
    multiply(output,
             {p.groups, rows, pixels, depth},
             left,
             pack_columns(chunk.problem, chunk.input, true),
             {arg(output),
              output.stride(1),
              pixels_of(p, output),
              rows * output.stride(1)},
             addend,
             p.is_large);
  };
  for_each_chunk(p,
                 a.input,
                 a.output,
                 images_at_once(p, a.input, elements_of_columns(p)),
                 multiply_chunk);
}

void im2col_backward_data(const ConvolutionProblem& problem,
                          const ConvolutionArguments& a) {
  ConvolutionProblem p = problem;
  p.is_large |= !fits_int32(elements_of_columns(p));
  const int64_t rows = p.depth();
  const int64_t depth = p.out_channels / p.groups;
  const Tensor weight = with_pixel_stride(a.weight);
  const Tensor left =
      pack_kept(weight,
                0,
                {{},
                 {p.filter_size(), weight.stride(1), weight.stride(4)},
                 level(depth, weight.stride(0)),
                 depth * weight.stride(0)},
                p.groups,
                rows,
                depth,
                left_width(weight, rows));
  const auto add_chunk = [&](const Chunk& chunk) {
    const Tensor& grad = chunk.output;
    const int64_t pixels = chunk.problem.images * p.pixels();
    const Tensor right = pack(grad,
                              {arg(grad),
                               pixels_of(p, grad),
                               level(depth, grad.stride(1)),
                               depth * grad.stride(1)},
                              p.groups,
                              pixels,
                              depth,
                              right_width(grad, pixels),
                              p.is_large);
    const Tensor columns =
        empty_like_meta({p.groups * rows * pixels},
                        {},
                        grad.options().dtype(compute_type(grad.scalar_type())));
    multiply(columns,
             {p.groups, rows, pixels, depth},
             left,
             right,
             {arg(columns), pixels, level(pixels, 1), rows * pixels},
             {},
             p.is_large);
    sum_columns(chunk.problem, columns, chunk.input);
  };
  for_each_chunk(p,
                 a.input,
                 with_pixel_stride(a.output),
                 images_at_once(p, a.input, elements_of_columns(p)),
                 add_chunk);
}

void im2col_backward_weight(const ConvolutionProblem& p,
                            const ConvolutionArguments& a) {
  const int64_t rows = p.out_channels / p.groups;
  const int64_t columns = p.depth();
  const int64_t step = images_at_once(
      p, a.weight, elements_of_columns(p) + p.out_channels * p.pixels());
  const Tensor sums = sums_for(a.weight, step < p.images, true);
  const auto add_chunk = [&](const Chunk& chunk) {
    const Tensor& grad = chunk.output;
    const int64_t depth = chunk.problem.images * p.pixels();
    const Tensor left = pack(grad,
                             {arg(grad),
                              level(rows, grad.stride(1)),
                              pixels_of(p, grad),
                              rows * grad.stride(1)},
                             p.groups,
                             rows,
                             depth,
                             left_width(grad, rows),
                             p.is_large);
    Addend addend;
    if (!chunk.is_first) {
      addend = {arg(sums), columns, 1, rows * columns, 1, 1};
    }
    multiply(sums,
             {p.groups, rows, columns, depth},
             left,
             pack_columns(chunk.problem, chunk.input, false),
             {arg(sums), columns, level(columns, 1), rows * columns},
             addend,
             p.is_large);
  };
  for_each_chunk(p, a.input, with_pixel_stride(a.output), step, add_chunk);
  if (!sums.is_same(a.weight)) {
    a.weight.copy_(sums);
  }
}

}  // namespace torch_opencl::ops
