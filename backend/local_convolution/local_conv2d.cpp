// torch_opencl::local_conv2d: convolution with weights of their own for every
// position. It is bilinear, and so are its two gradients, whose gradients are
// the three again: python/torch_opencl/nn says which.
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "../common/integers.h"
#include "../common/lanes.h"
#include "../common/optional_tensor.h"
#include "kernel_sources.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

constexpr int kGpuGroup = 64;

// geometry_t of local_conv2d.cl.
struct LocalConvGeometry {
  int32_t images;
  int32_t channels;
  int32_t out_channels;
  int32_t in[2];
  int32_t out[2];
  int32_t kernel_size[2];
  int32_t stride[2];
  int32_t padding[2];
  int32_t dilation[2];
};

// planes_t.
template <class Index>
struct Planes {
  explicit Planes(const Tensor& t)
      : image(static_cast<Index>(t.stride(0))),
        channel(static_cast<Index>(t.stride(1))),
        row(static_cast<Index>(t.stride(2))),
        column(static_cast<Index>(t.stride(3))),
        extent(1) {
    for (int d = 0; d < 4; ++d) {
      extent += static_cast<Index>((t.size(d) - 1) * t.stride(d));
    }
  }
  Index image, channel, row, column, extent;
};

struct Options {
  IntArrayRef stride;
  IntArrayRef padding;
  IntArrayRef dilation;
};

// Everything a kernel relies on; torch_opencl.nn.functional explains mistakes.
LocalConvGeometry check_geometry(const char* name,
                                 IntArrayRef input,
                                 IntArrayRef weight,
                                 const Options& options) {
  TORCH_CHECK(input.size() == 4 && weight.size() == 6,
              name,
              ": expected an input of 4 and a weight of 6 dimensions, got ",
              input.size(),
              " and ",
              weight.size());
  TORCH_CHECK(input[1] == weight[1],
              name,
              ": weight of size ",
              weight,
              " wants ",
              weight[1],
              " channels, input of size ",
              input,
              " has ",
              input[1]);
  for (const auto& [option, values] :
       {std::pair{"stride", options.stride},
        std::pair{"padding", options.padding},
        std::pair{"dilation", options.dilation}}) {
    TORCH_CHECK(values.size() == 2,
                "expected ",
                option,
                " to be a single integer value or a list of 2 values to match "
                "the convolution dimensions, but got ",
                option,
                "=",
                values);
  }
  LocalConvGeometry geometry;
  const auto narrow = [&](int64_t value) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        fits_int32(value), name, ": a size of ", value, " on opencl");
    return static_cast<int32_t>(value);
  };
  geometry.images = narrow(input[0]);
  geometry.channels = narrow(input[1]);
  geometry.out_channels = narrow(weight[0]);
  for (int d = 0; d < 2; ++d) {
    const int64_t stride = options.stride[d];
    const int64_t padding = options.padding[d];
    const int64_t dilation = options.dilation[d];
    const int64_t kernel = weight[2 + d];
    TORCH_CHECK(stride > 0 && padding >= 0 && dilation > 0 && kernel > 0,
                name,
                ": expected a positive kernel size, stride and dilation and a "
                "padding that is not negative");
    const int64_t reach = dilation * (kernel - 1) + 1;
    const int64_t padded = input[2 + d] + 2 * padding;
    const int64_t out = padded < reach ? 0 : (padded - reach) / stride + 1;
    TORCH_CHECK(out == weight[4 + d],
                name,
                ": weight of size ",
                weight,
                " is for ",
                weight[4 + d],
                " positions where input of size ",
                input,
                " has ",
                out);
    geometry.in[d] = narrow(input[2 + d]);
    geometry.out[d] = narrow(out);
    geometry.kernel_size[d] = narrow(kernel);
    geometry.stride[d] = narrow(stride);
    geometry.padding[d] = narrow(padding);
    geometry.dilation[d] = narrow(dilation);
  }
  return geometry;
}

void check_operand(const char* name, const Tensor& first, const Tensor& other) {
  check_floating(name, first);
  TORCH_CHECK(first.scalar_type() == other.scalar_type(),
              name,
              ": expected tensors of one dtype, got ",
              first.scalar_type(),
              " and ",
              other.scalar_type());
  TORCH_CHECK(first.device() == other.device(),
              "Expected all tensors to be on the same device, but found at "
              "least two devices, ",
              first.device(),
              " and ",
              other.device(),
              "!");
}

void check_gradient(const char* name,
                    const Tensor& gradient,
                    const LocalConvGeometry& g) {
  const std::array<int64_t, 4> size{
      g.images, g.out_channels, g.out[0], g.out[1]};
  TORCH_CHECK(gradient.sizes() == IntArrayRef(size),
              name,
              ": expected a gradient of size ",
              IntArrayRef(size),
              ", got ",
              gradient.sizes());
}

Tensor with_rows(const Tensor& tensor) {
  if (!aten::device_of(tensor).is_cpu() || tensor.stride(3) == 1) {
    return tensor;
  }
  return tensor.contiguous();  // copy: vectors lie along rows
}

// What a work-item of the kernels accumulates, and the launch.
class Plan {
 public:
  // The extents of the accumulators' two dimensions.
  Plan(const Tensor& on, int64_t left, int64_t right)
      : is_cpu_(aten::device_of(on).is_cpu()),
        units_(aten::device_of(on).info().compute_units),
        left_(left >= 3 ? 4 : 1),
        right_(right < 3 ? 1 : most_right(on)),
        lefts_(ceil_div(left, left_)),
        right_extent_(right) {}

  int64_t lanes() const { return is_cpu_ ? kLanes : 1; }
  int64_t spans(int64_t columns) const {
    return (columns + lanes() - 1) / lanes();
  }
  // The right extent that one work-item goes through, where parts of it are
  // not needed to keep the device busy.
  int64_t right_part(int64_t items) const {
    const int64_t wanted = units_ * (is_cpu_ ? 8 : 4096);
    const int64_t tiles = ceil_div(right_extent_, right_);
    const int64_t parts = std::clamp<int64_t>(
        (wanted + items * lefts_ - 1) / (items * lefts_), 1, tiles);
    return ceil_div(tiles, parts) * right_;
  }
  int64_t right() const { return right_; }

  // `items`: spans of all rows.
  template <class Index, class... Arguments>
  void run(const Tensor& on,
           const char* kernel,
           int64_t items,
           int64_t right_part,
           const Arguments&... arguments) const {
    const int64_t parts = ceil_div(right_extent_, right_part);
    launch(on,
           sources::local_conv2d,
           kernel,
           {{"DTYPE", dtype_of(on)},
            {"LANES", lanes()},
            {"LEFT", left_},
            {"RIGHT", right_},
            {"INDEX64", sizeof(Index) == 8},
            {"WG_SIZE", is_cpu_ ? 1 : kGpuGroup}},
           is_cpu_ ? range(items * lefts_ * parts, 1)
                   : range(items, lefts_, parts, kGpuGroup, 1, 1),
           arguments...);
  }

 private:
  // On CPUs all accumulators and operands are in registers, of which sixteen
  // doubles take two; with 6 a third of the accumulators are not.
  static int64_t most_right(const Tensor& on) {
    return on.scalar_type() == at::kDouble ? 2
           : aten::device_of(on).is_cpu()  ? 4
                                           : 6;
  }

  bool is_cpu_;
  int64_t units_;
  int64_t left_;
  int64_t right_;
  int64_t lefts_;
  int64_t right_extent_;
};

// One past the farthest element that is indexed in any of `tensors`.
int64_t reach_of(std::initializer_list<const Tensor*> tensors) {
  int64_t most = 0;
  for (const Tensor* tensor : tensors) {
    int64_t extent = 1;
    for (int64_t d = 0; d < tensor->dim(); ++d) {
      extent += (tensor->size(d) - 1) * tensor->stride(d);
    }
    most = std::max(most, extent);
  }
  // Spans may begin before and end behind a tensor.
  return most + (1 << 20);
}

Tensor local_conv2d(const Tensor& input,
                    const Tensor& weight,
                    const std::optional<Tensor>& bias,
                    IntArrayRef stride,
                    IntArrayRef padding,
                    IntArrayRef dilation) {
  constexpr const char* kName = "local_conv2d";
  check_operand(kName, input, weight);
  const LocalConvGeometry g = check_geometry(
      kName, input.sizes(), weight.sizes(), {stride, padding, dilation});
  const std::vector<int64_t> positions{weight.size(0), g.out[0], g.out[1]};
  const Tensor out =
      at::empty({g.images, g.out_channels, g.out[0], g.out[1]},
                input.options().memory_format(input.suggest_memory_format()));
  Tensor start;
  if (is_given(bias)) {
    check_operand(kName, input, *bias);
    start = bias->expand(positions);
  }
  if (out.numel() == 0) {
    return out;
  }
  if (input.numel() == 0) {
    out.zero_();
    return start.defined() ? out.add_(start) : out;
  }
  const Tensor x = with_rows(input);
  const Tensor w = weight.contiguous();  // copy: positions are vectors
  const Plan plan(out, g.out_channels, g.images);
  const int64_t items = plan.spans(g.out[1]) * g.out[0];
  with_index(reach_of({&out, &x, &w}), [&](auto index) {
    using Index = decltype(index);
    const auto bias_stride = [&](int d) {
      return static_cast<Index>(start.defined() ? start.stride(d) : 0);
    };
    const int64_t part = plan.right_part(items);
    plan.run<Index>(out,
                    "local_conv2d_forward",
                    items,
                    part,
                    arg(out),
                    Planes<Index>(out),
                    arg(x),
                    Planes<Index>(x),
                    arg(w),
                    arg(start),
                    bias_stride(0),
                    bias_stride(1),
                    bias_stride(2),
                    int32_t(start.defined()),
                    g,
                    static_cast<int32_t>(part));
  });
  return out;
}

Tensor local_conv2d_input_gradient(const Tensor& gradient,
                                   const Tensor& weight,
                                   IntArrayRef input_size,
                                   IntArrayRef stride,
                                   IntArrayRef padding,
                                   IntArrayRef dilation) {
  constexpr const char* kName = "local_conv2d_input_gradient";
  check_operand(kName, gradient, weight);
  const LocalConvGeometry g = check_geometry(
      kName, input_size, weight.sizes(), {stride, padding, dilation});
  check_gradient(kName, gradient, g);
  const Tensor out = at::empty(
      input_size,
      gradient.options().memory_format(gradient.suggest_memory_format()));
  if (out.numel() == 0) {
    return out;
  }
  if (gradient.numel() == 0) {
    return out.zero_();
  }
  const Tensor y = with_rows(gradient);
  const Tensor w = weight.contiguous();  // copy: positions are vectors
  const Plan plan(out, g.channels, g.images);
  const int64_t phases = std::min(g.stride[1], g.in[1]);
  const int64_t items =
      phases * plan.spans(ceil_div(g.in[1], phases)) * g.in[0];
  with_index(reach_of({&out, &y, &w}), [&](auto index) {
    using Index = decltype(index);
    const int64_t part = plan.right_part(items);
    plan.run<Index>(out,
                    "local_conv2d_input_gradient",
                    items,
                    part,
                    arg(out),
                    Planes<Index>(out),
                    arg(y),
                    Planes<Index>(y),
                    arg(w),
                    g,
                    static_cast<int32_t>(part));
  });
  return out;
}

Tensor local_conv2d_weight_gradient(const Tensor& gradient,
                                    const Tensor& input,
                                    IntArrayRef weight_size,
                                    IntArrayRef stride,
                                    IntArrayRef padding,
                                    IntArrayRef dilation) {
  constexpr const char* kName = "local_conv2d_weight_gradient";
  check_operand(kName, gradient, input);
  const LocalConvGeometry g = check_geometry(
      kName, input.sizes(), weight_size, {stride, padding, dilation});
  check_gradient(kName, gradient, g);
  const Tensor out = at::empty(weight_size, input.options());
  if (out.numel() == 0) {
    return out;
  }
  if (input.numel() == 0) {
    return out.zero_();
  }
  const Tensor y = with_rows(gradient);
  const Tensor x = with_rows(input);
  const Plan plan(out, g.out_channels, g.channels);
  with_index(reach_of({&out, &x, &y}), [&](auto index) {
    using Index = decltype(index);
    plan.run<Index>(out,
                    "local_conv2d_weight_gradient",
                    plan.spans(g.out[1]) * g.out[0],
                    plan.right(),
                    arg(out),
                    arg(y),
                    Planes<Index>(y),
                    arg(x),
                    Planes<Index>(x),
                    g);
  });
  return out;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_opencl, m) {
  m.def(
      "local_conv2d(Tensor input, Tensor weight, Tensor? bias, "
      "SymInt[2] stride, SymInt[2] padding, SymInt[2] dilation) -> Tensor");
  m.def(
      "local_conv2d_input_gradient(Tensor gradient, Tensor weight, "
      "SymInt[] input_size, SymInt[2] stride, SymInt[2] padding, "
      "SymInt[2] dilation) -> Tensor");
  m.def(
      "local_conv2d_weight_gradient(Tensor gradient, Tensor input, "
      "SymInt[] weight_size, SymInt[2] stride, SymInt[2] padding, "
      "SymInt[2] dilation) -> Tensor");
}

TORCH_LIBRARY_IMPL(torch_opencl, PrivateUse1, m) {
  m.impl("local_conv2d", TORCH_FN(local_conv2d));
  m.impl("local_conv2d_input_gradient", TORCH_FN(local_conv2d_input_gradient));
  m.impl("local_conv2d_weight_gradient",
         TORCH_FN(local_conv2d_weight_gradient));
}

}  // namespace torch_opencl::ops
