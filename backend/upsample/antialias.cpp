// _upsample_*_aa: the filter is as wide as what an output element stands for.
// Filters are separable and linear: one dimension is resampled after the other,
// and a gradient with the transposed weights.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "kernel_sources.h"

#include <ATen/native/UpSample.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_bicubic2d_aa_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_ops.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_bilinear2d_aa_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_ops.h>
#include <ATen/ops/_upsample_lanczos2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_lanczos2d_aa_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

// A filter reaches `radius` source positions, times the scale when shrinking.
struct Triangle {
  static constexpr double radius = 1;
  static double weight(double x) { return std::max(1 - std::abs(x), 0.0); }
};

// Keys's cubic convolution with a = -0.5, as Pillow has it.
struct Cubic {
  static constexpr double radius = 2;
  static double weight(double x) {
    constexpr double a = -0.5;
    x = std::abs(x);
    if (x < 1) {
      return ((a + 2) * x - (a + 3)) * x * x + 1;
    }
    return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
  }
};

struct Lanczos {
  static constexpr double radius = 3;
  static double sinc(double x) {
    return x == 0 ? 1 : std::sin(M_PI * x) / (M_PI * x);
  }
  static double weight(double x) {
    return std::abs(x) < radius ? sinc(x) * sinc(x / radius) : 0;
  }
};

// What each position is a weighted sum of: a run of neighbouring positions.
struct Weights {
  explicit Weights(int64_t length) : begins(length), rows(length) {}

  std::vector<int64_t> begins;
  std::vector<std::vector<double>> rows;
};

// Of the positions of `out`, each of sum 1.
template <class Filter>
Weights weights_of(int64_t in,
                   int64_t out,
                   bool align_corners,
                   const std::optional<double>& scale_factor) {
  const double scale = at::native::area_pixel_compute_scale<double>(
      in, out, align_corners, scale_factor);
  const double stretch = std::max(scale, 1.0);
  const double support = Filter::radius * stretch;
  Weights weights(out);
  for (int64_t i = 0; i < out; ++i) {
    const double center = scale * (i + 0.5);
    const auto begin =
        std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const auto end =
        std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), in);
    std::vector<double>& row = weights.rows[i];
    double total = 0;
    for (int64_t j = begin; j < end; ++j) {
      row.push_back(Filter::weight((j - center + 0.5) / stretch));
      total += row.back();
    }
    for (double& weight : row) {
      weight /= total != 0 ? total : 1;
    }
    weights.begins[i] = begin;
  }
  return weights;
}

// Runs neither begin nor end before those of the position ahead, so the
// positions that read one are a run, too.
Weights transposed(const Weights& weights, int64_t in) {
  Weights result(in);
  for (size_t i = 0; i < weights.rows.size(); ++i) {
    int64_t position = weights.begins[i];
    for (const double weight : weights.rows[i]) {
      std::vector<double>& row = result.rows[position];
      if (row.empty()) {
        result.begins[position] = static_cast<int64_t>(i);
      }
      row.push_back(weight);
      ++position;
    }
  }
  return result;
}

// `source`, resampled along `dim`, in the dtype of `options`.
Tensor resample_lines(const Tensor& source,
                      int64_t dim,
                      const Weights& weights,
                      const at::TensorOptions& options) {
  const auto length = static_cast<int64_t>(weights.rows.size());
  size_t most = 1;
  for (const std::vector<double>& row : weights.rows) {
    most = std::max(most, row.size());
  }
  const Tensor runs = at::empty({length, 2}, at::kInt);
  const Tensor matrix =
      at::zeros({length, static_cast<int64_t>(most)}, at::kDouble);
  auto* run = runs.mutable_data_ptr<int32_t>();
  auto* row = matrix.mutable_data_ptr<double>();
  for (int64_t i = 0; i < length; ++i, row += most) {
    *run++ = static_cast<int32_t>(weights.begins[i]);
    *run++ = static_cast<int32_t>(weights.rows[i].size());
    std::copy(weights.rows[i].begin(), weights.rows[i].end(), row);
  }
  std::vector<int64_t> sizes = source.sizes().vec();
  sizes[dim] = length;
  const Tensor out = at::empty(sizes, options);
  const int64_t inner = dim == 2 ? source.size(3) : 1;
  const int64_t lines = out.numel() / (length * inner);
  TORCH_CHECK(std::max(length, source.size(dim)) * inner <=
                  std::numeric_limits<int32_t>::max(),
              "upsample: images of more than 2^31 - 1 pixels are not supported "
              "on opencl, got ",
              source.sizes());
  launch(out,
         sources::resample_lines,
         "resample_lines",
         {{"DTYPE", dtype_of(source)}, {"OUT_DTYPE", dtype_of(out)}},
         range(length * inner, lines, 64, 1),
         static_cast<int32_t>(length),
         static_cast<int32_t>(source.size(dim)),
         static_cast<int32_t>(inner),
         static_cast<int32_t>(most),
         arg(out),
         arg_in(source),
         arg_in(matrix.to(options)),
         arg_in(runs.to(options.dtype(at::kInt))));
  return out;
}

template <class Filter>
void resample(const Tensor& source,
              const Tensor& result,
              bool align_corners,
              const std::optional<double>& scale_h,
              const std::optional<double>& scale_w,
              bool is_backward) {
  if (result.numel() == 0) {
    return;
  }
  const bool is_byte = result.scalar_type() == at::kByte && !is_backward;
  if (!is_byte) {
    check_floating("upsample", result);
  }
  const at::TensorOptions options = source.options().dtype(
      is_byte ? at::kFloat : compute_type(source.scalar_type()));
  const Tensor& large = is_backward ? source : result;
  const Tensor& small = is_backward ? result : source;
  const auto weights = [&](int64_t dim, const std::optional<double>& scale) {
    Weights found = weights_of<Filter>(
        small.size(dim), large.size(dim), align_corners, scale);
    return is_backward ? transposed(found, small.size(dim)) : found;
  };
  // First what leaves the fewer elements.
  const bool rows_shrink = result.size(2) <= source.size(2);
  const int64_t first = rows_shrink ? 2 : 3, second = rows_shrink ? 3 : 2;
  const auto& [scale_first, scale_second] =
      rows_shrink ? std::tie(scale_h, scale_w) : std::tie(scale_w, scale_h);
  Tensor values = source.contiguous();  // copy: read in lines
  for (const auto& [dim, scale] :
       {std::tie(first, scale_first), std::tie(second, scale_second)}) {
    // As torch's CPU does, an image is copied along what keeps its size.
    if (is_backward || small.size(dim) != large.size(dim)) {
      values = resample_lines(values, dim, weights(dim, scale), options);
    }
  }
  if (is_byte && values.scalar_type() == at::kFloat) {
    values = values.add_(0.5).floor_().clamp_(0, 255);  // halves go up
  }
  result.copy_(values);
}

template <class Meta, class Filter>
struct Forward : Meta {
  void impl(const Tensor& self,
            IntArrayRef,
            bool align_corners,
            std::optional<double> scale_h,
            std::optional<double> scale_w,
            const Tensor& out) {
    resample<Filter>(self, out, align_corners, scale_h, scale_w, false);
  }
};

template <class Meta, class Filter>
struct Backward : Meta {
  void impl(const Tensor& grad_output,
            IntArrayRef,
            IntArrayRef,
            bool align_corners,
            std::optional<double> scale_h,
            std::optional<double> scale_w,
            const Tensor& grad_input) {
    resample<Filter>(
        grad_output, grad_input, align_corners, scale_h, scale_w, true);
  }
};

}  // namespace

#define ANTIALIAS(name, Filter)                                        \
  structured<Forward<at::meta::structured_##name, Filter>,             \
             at::_ops::name##_out>(m);                                 \
  structured<Backward<at::meta::structured_##name##_backward, Filter>, \
             at::_ops::name##_backward_grad_input>(m)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  ANTIALIAS(_upsample_bilinear2d_aa, Triangle);
  ANTIALIAS(_upsample_bicubic2d_aa, Cubic);
  ANTIALIAS(_upsample_lanczos2d_aa, Lanczos);
}

#undef ANTIALIAS

}  // namespace torch_opencl::ops
