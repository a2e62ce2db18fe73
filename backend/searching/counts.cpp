// bincount, histc and count_nonzero.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "../common/integers.h"
#include "../common/optional_tensor.h"
#include "kernel_sources.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/count_nonzero_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/histc_ops.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <limits>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Scalar;
using at::Tensor;

// Parts of the values that a core of a CPU counts, each in a row of its own.
constexpr int64_t kPartsOfCore = 4;

// How often 0..bins-1 occur; others are not counted.
Tensor occurrences(const Tensor& values, int64_t bins) {
  const Tensor dense = values.contiguous();  // copy: parts are runs
  TORCH_CHECK_NOT_IMPLEMENTED(fits_int32(dense.numel()),
                              "opencl counts less than 2^31 values");
  const runtime::Device& device = aten::device_of(values);
  const int64_t most =
      device.is_cpu() ? kPartsOfCore * device.info().compute_units : 1;
  const int64_t parts = std::clamp<int64_t>(dense.numel() / bins, 1, most);
  const int64_t part = ceil_div(dense.numel(), parts);
  const Tensor counts =
      at::zeros({parts, bins}, values.options().dtype(at::kInt));
  if (part > 0) {
    launch(counts,
           sources::counts,
           "count_values",
           {{"DTYPE", dtype_of(counts)}, {"IS_CPU", device.is_cpu()}},
           device.is_cpu() ? range(parts, 1) : range(dense.numel(), 64),
           arg_in(dense),
           arg(counts),
           static_cast<uint64_t>(dense.numel()),
           static_cast<uint64_t>(part),
           bins);
  }
  return counts.sum(0);
}

Tensor bincount(const Tensor& self,
                const OptionalTensor& weights,
                int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  check_implemented(
      at::isIntegralType(self.scalar_type(), /*includeBool=*/false),
      "bincount_cpu",
      self.scalar_type());
  TORCH_CHECK(self.dim() == 1,
              "bincount only supports 1-d non-negative integral inputs.");
  const bool has_weights = is_given(weights);
  const at::TensorOptions integers = self.options().dtype(at::kLong);
  if (self.numel() == 0) {
    return at::zeros({minlength}, integers);
  }
  TORCH_CHECK(
      !has_weights || (weights->dim() == 1 && weights->size(0) == self.size(0)),
      "weights should be 1-d and have the same length as input");
  TORCH_CHECK(self.min().item<int64_t>() >= 0,
              "bincount only supports 1-d non-negative integral inputs.");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const int64_t greatest = self.max().item<int64_t>();
  TORCH_CHECK(greatest < kMost,
              "maximum value of input overflowed, it should be < ",
              kMost,
              " but got ",
              greatest);
  const int64_t bins = std::max(greatest + 1, minlength);
  if (!has_weights) {
    return occurrences(self.to(at::kLong), bins);
  }
  const at::ScalarType type =
      weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  return at::zeros({bins}, self.options().dtype(type))
      .index_add_(0, self.to(at::kLong), weights->to(type));
}

Tensor& histc_out(const Tensor& self,
                  int64_t bins,
                  const Scalar& min,
                  const Scalar& max,
                  Tensor& out) {
  check_number("histogram_cpu", self);
  TORCH_CHECK(bins > 0, "bins must be > 0");
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "torch.histogram: input tensor and hist tensor should have the "
              "same dtype, but got input ",
              self.dtype(),
              " and hist ",
              out.dtype());
  at::native::resize_output(out, {bins});
  double low = min.toDouble();
  double high = max.toDouble();
  // Integers are sorted into bins by integers, as on CUDA.
  const bool is_integral = !self.is_floating_point();
  if (is_integral) {
    low = std::trunc(low);
    high = std::trunc(high);
  }
  if (low == high && self.numel() > 0) {
    low = self.min().item<double>();
    high = self.max().item<double>();
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  TORCH_CHECK(std::isfinite(low) && std::isfinite(high),
              "range of [",
              low,
              ", ",
              high,
              "] is not finite");
  TORCH_CHECK(low < high, "max must be larger than min");
  const Tensor flat = self.reshape({-1}).to(
      is_integral ? at::kLong : compute_type(self.scalar_type()));
  const Tensor inside = at::logical_and(flat.ge(low), flat.le(high));
  const Tensor place =
      is_integral ? flat.sub(static_cast<int64_t>(low))
                        .mul_(bins)
                        .div_(static_cast<int64_t>(high - low), "floor")
                  : flat.sub(low).mul_(bins).div_(high - low).floor_();
  // What is outside, and NaN, counts in a bin that nobody sees.
  const Tensor bin =
      at::where(inside, place.clamp_max(bins - 1), bins).to(at::kLong);
  return out.copy_(occurrences(bin, bins));
}

Tensor histc(const Tensor& self,
             int64_t bins,
             const Scalar& min,
             const Scalar& max) {
  Tensor out = at::empty({0}, self.options());
  return histc_out(self, bins, min, max, out);
}

Tensor count_nonzero(const Tensor& self, std::optional<int64_t> dim) {
  return dim.has_value() ? self.ne(0).sum(*dim) : self.ne(0).sum();
}

Tensor count_nonzero_dims(const Tensor& self, at::IntArrayRef dims) {
  return dims.empty() ? self.ne(0).sum() : self.ne(0).sum(dims);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::bincount, &bincount>(m);
  native<at::_ops::histc, &histc>(m);
  native<at::_ops::histc_out, &histc_out>(m);
  native<at::_ops::count_nonzero, &count_nonzero>(m);
  native<at::_ops::count_nonzero_dim_IntList, &count_nonzero_dims>(m);
}

}  // namespace torch_opencl::ops
