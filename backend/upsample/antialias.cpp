// _upsample_*_aa: the filter is as wide as what an output element stands for.
// Filters are separable and linear, so a resampling is a product with a matrix
// of weights from each side, and its gradient one with their transposes.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"

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
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <cmath>

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

// (out, in): a row holds the weights of one output position, of sum 1.
template <class Filter>
Tensor weights(int64_t in,
               int64_t out,
               bool align_corners,
               const std::optional<double>& scale_factor,
               const at::TensorOptions& options) {
  const double scale = at::native::area_pixel_compute_scale<double>(
      in, out, align_corners, scale_factor);
  const double stretch = std::max(scale, 1.0);
  const double support = Filter::radius * stretch;
  const Tensor matrix = at::zeros({out, in}, at::kDouble);
  double* row = matrix.mutable_data_ptr<double>();
  for (int64_t i = 0; i < out; ++i, row += in) {
    const double center = scale * (i + 0.5);
    const auto begin =
        std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const auto end =
        std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), in);
    double total = 0;
    for (int64_t j = begin; j < end; ++j) {
      row[j] = Filter::weight((j - center + 0.5) / stretch);
      total += row[j];
    }
    for (int64_t j = begin; total != 0 && j < end; ++j) {
      row[j] /= total;
    }
  }
  return matrix.to(options);
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
  Tensor vertical = weights<Filter>(
      small.size(2), large.size(2), align_corners, scale_h, options);
  Tensor horizontal = weights<Filter>(
      small.size(3), large.size(3), align_corners, scale_w, options);
  if (is_backward) {
    vertical = vertical.t();
    horizontal = horizontal.t();
  }
  Tensor values =
      at::matmul(vertical, at::matmul(source.to(options), horizontal.t()));
  if (is_byte) {
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
