// cumsum, cumprod, logcumsumexp, cummax and cummin.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/integers.h"
#include "../common/non_temporal.h"
#include "kernel_sources.h"
#include "scan_groups.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_cummax_helper_ops.h>
#include <ATen/ops/_cummin_helper_ops.h>
#include <ATen/ops/_logcumsumexp_native.h>
#include <ATen/ops/_logcumsumexp_ops.h>
#include <ATen/ops/cumprod_native.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_native.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kLongRow = 256;
constexpr int kScanLanes = 16;
// Neighbouring lines that a work-item adds up by vectors, and elements.
constexpr int64_t kLeastRun = 64;
constexpr int64_t kMostRun = 512;
constexpr int64_t kLeastElements = 4096;
constexpr int64_t kMostElements = 16384;

Tensor dense_for(const Tensor& result) {
  return result.is_contiguous()
             ? result
             : at::empty_like(result, at::MemoryFormat::Contiguous);
}

void copy_back(const Tensor& dense, const Tensor& result) {
  if (!dense.is_same(result)) {
    result.copy_(dense);
  }
}

// One work-item a line; `arguments` follow those of every scan.
template <class... Arguments>
void launch_lines(const char* kernel,
                  const char* define,
                  const Tensor& out,
                  const Tensor& input,
                  const Lines& lines,
                  const Arguments&... arguments) {
  // Long rows one by one: as a vector they would be gathered.
  const bool is_long_row = lines.inner == 1 && lines.length >= kLongRow;
  const int group = is_long_row ? 1 : 16;
  launch(out,
         sources::scan,
         kernel,
         {{"DTYPE", dtype_of(out)}, {"GROUP", group}, {define, 1}},
         range(lines.count, group),
         arg(out),
         arg_in(input),
         static_cast<uint64_t>(lines.count),
         lines.length,
         lines.inner,
         arguments...);
}

// Whether sums of these lines are made by vectors, in float64, as torch makes
// them on the CPU.
bool has_vectors(const Tensor& out, const Lines& lines) {
  const runtime::Device& device = aten::device_of(out);
  const at::ScalarType dtype = out.scalar_type();
  return device.is_cpu() && device.info().has_fp64 &&
         (dtype == at::kFloat || dtype == at::kHalf ||
          dtype == at::kBFloat16) &&
         (lines.inner == 1 ? lines.length : lines.inner) >= kScanLanes;
}

template <class... Arguments>
void launch_vectors(const char* kernel,
                    const Tensor& out,
                    const Tensor& input,
                    const Lines& lines,
                    int64_t items,
                    const Arguments&... arguments) {
  launch(
      out,
      sources::scan,
      kernel,
      {{"DTYPE", dtype_of(out)},
       {"GROUP", 1},
       {"IS_FLOATING", 1},
       {"LANES", kScanLanes},
       {"RUN", kMostRun},
       {"NON_TEMPORAL",
        is_non_temporal(aten::device_of(out), out.scalar_type(), out.numel())}},
      range(items, 1),
      arg(out),
      arg_in(input),
      static_cast<uint64_t>(lines.count),
      lines.length,
      lines.inner,
      arguments...);
}

void sum_by_vectors(const Tensor& out,
                    const Tensor& input,
                    const Lines& lines) {
  const int64_t wanted = int64_t{aten::device_of(out).info().compute_units} * 4;
  // Of `count` pieces of work of `elements`, how many a work-item takes.
  const auto per_item = [wanted](int64_t count, int64_t elements) {
    return std::max<int64_t>(std::clamp(count / wanted,
                                        kLeastElements / elements,
                                        kMostElements / elements),
                             1);
  };
  if (lines.inner == 1) {
    const int64_t rows = per_item(lines.count, lines.length);
    launch_vectors("cumulative_sum_rows",
                   out,
                   input,
                   lines,
                   ceil_div(lines.count, rows),
                   static_cast<uint64_t>(rows));
    return;
  }
  const int64_t share = round_up(lines.count / wanted, kScanLanes);
  const int64_t run = std::clamp(share, kLeastRun, kMostRun);
  const int64_t runs = lines.count / lines.inner * (ceil_div(lines.inner, run));
  const int64_t together =
      per_item(runs, lines.length * std::min(run, lines.inner));
  launch_vectors("cumulative_sum_columns",
                 out,
                 input,
                 lines,
                 ceil_div(runs, together),
                 static_cast<uint64_t>(run),
                 static_cast<uint64_t>(together));
}

void scan(const char* kernel,
          const char* define,
          const Tensor& result,
          const Tensor& self,
          int64_t dim,
          bool is_sum = false) {
  if (result.numel() == 0) {
    return;
  }
  const Tensor promoted = self.to(result.scalar_type());
  const Tensor input = promoted.contiguous();  // copy: lines have two strides
  const Tensor out = dense_for(result);
  const Lines lines(out, dim);
  if (!aten::device_of(out).is_cpu()) {
    scan_by_groups(define, false, out, {}, input, lines);
  } else if (is_sum && has_vectors(out, lines)) {
    sum_by_vectors(out, input, lines);
  } else {
    launch_lines(kernel,
                 out.is_floating_point() ? "IS_FLOATING" : "IS_INTEGRAL",
                 out,
                 input,
                 lines);
  }
  copy_back(out, result);
}

void cumsum(const Tensor& result, const Tensor& self, int64_t dim) {
  check_implemented(
      result.scalar_type() != at::kBool, "cumsum", result.scalar_type());
  if (result.is_complex()) {
    const Tensor parts = at::view_as_real(self.to(result.scalar_type()));
    cumsum(at::view_as_real(result), parts, dim);
    return;
  }
  scan("cumulative_sum", "OP_SUM", result, self, dim, true);
}

// By steps of twice the length: every one multiplies all elements. In double,
// where there is one: what lies between may be beyond a float's range.
void complex_cumprod(const Tensor& result, const Tensor& self, int64_t dim) {
  Tensor products =
      self.to(aten::device_of(result).info().has_fp64 ? at::kComplexDouble
                                                      : result.scalar_type());
  const int64_t size = products.size(dim);
  for (int64_t step = 1; step < size; step *= 2) {
    const Tensor next = products.clone();
    Tensor later = next.narrow(dim, step, size - step);
    at::mul_out(later,
                products.narrow(dim, 0, size - step),
                products.narrow(dim, step, size - step));
    products = next;
  }
  result.copy_(products);
}

void cumprod(const Tensor& result, const Tensor& self, int64_t dim) {
  check_implemented(
      result.scalar_type() != at::kBool, "cumprod", result.scalar_type());
  if (result.is_complex()) {
    complex_cumprod(result, self, dim);
    return;
  }
  scan("cumulative_product", "OP_PRODUCT", result, self, dim);
}

void logcumsumexp(Tensor& result, const Tensor& self, int64_t dim) {
  check_floating("logcumsumexp_out_cpu", self);
  at::native::resize_output(result, self.sizes());
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (self.dim() == 0) {
    result.copy_(self);
    return;
  }
  scan("cumulative_log_sum_exp", "OP_LOG_SUM_EXP", result, self, dim);
}

template <bool kIsMaximum>
void extremes(const Tensor& self,
              Tensor& values,
              Tensor& indices,
              int64_t dim) {
  check_scalar_type(values, self.scalar_type());
  check_scalar_type(indices, at::kLong);
  if (self.numel() == 0) {
    return;
  }
  const Tensor out = dense_for(values);
  const Tensor places = dense_for(indices);
  const Tensor input = self.contiguous();  // copy: lines have two strides
  const Lines lines(out, at::maybe_wrap_dim(dim, self.dim()));
  if (aten::device_of(out).is_cpu()) {
    launch_lines("cumulative_extreme",
                 kIsMaximum ? "IS_MAXIMUM" : "IS_MINIMUM",
                 out,
                 input,
                 lines,
                 arg(places));
  } else {
    scan_by_groups("OP_EXTREME", kIsMaximum, out, places, input, lines);
  }
  copy_back(out, values);
  copy_back(places, indices);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::native::structured_cumsum_out,
             at::_ops::cumsum_out,
             Numbers::kRealAndComplex>(m);
  structured<at::native::structured_cumprod_out,
             at::_ops::cumprod_out,
             Numbers::kRealAndComplex>(m);
  m.impl("_logcumsumexp",
         &WithFallback<at::_ops::_logcumsumexp,
                       &at::native::_logcumsumexp_cpu>::call);
  m.impl("_logcumsumexp.out",
         &WithFallback<at::_ops::_logcumsumexp_out,
                       &at::native::_logcumsumexp_out_cpu>::call);
  m.impl("_cummax_helper",
         &WithFallback<at::_ops::_cummax_helper, &extremes<true>>::call);
  m.impl("_cummin_helper",
         &WithFallback<at::_ops::_cummin_helper, &extremes<false>>::call);
}

}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(cumsum_stub, &torch_opencl::ops::cumsum)
REGISTER_PRIVATEUSE1_DISPATCH(cumprod_stub, &torch_opencl::ops::cumprod)
REGISTER_PRIVATEUSE1_DISPATCH(logcumsumexp_stub,
                              &torch_opencl::ops::logcumsumexp)

}  // namespace at::native
