// cumsum, cumprod, logcumsumexp, cummax and cummin.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "kernel_sources.h"

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

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kLongRow = 256;

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
                  int64_t dim,
                  const Arguments&... arguments) {
  const int64_t length = out.size(dim);
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < out.dim(); ++d) {
    inner *= out.size(d);
  }
  const int64_t lines = out.numel() / length;
  // Long rows one by one on CPUs: as a vector they would be gathered.
  const int group =
      aten::device_of(out).is_cpu() && inner == 1 && length >= kLongRow ? 1
                                                                        : 16;
  launch(out,
         sources::scan,
         kernel,
         {{"DTYPE", dtype_of(out)}, {"GROUP", group}, {define, 1}},
         range(lines, group),
         arg(out),
         arg(input),
         static_cast<uint64_t>(lines),
         length,
         inner,
         arguments...);
}

void scan(const char* kernel,
          const Tensor& result,
          const Tensor& self,
          int64_t dim) {
  if (result.numel() == 0) {
    return;
  }
  const Tensor promoted = self.to(result.scalar_type());
  const Tensor input = promoted.contiguous();  // copy: lines have two strides
  const Tensor out = dense_for(result);
  launch_lines(kernel,
               out.is_floating_point() ? "IS_FLOATING" : "IS_INTEGRAL",
               out,
               input,
               dim);
  copy_back(out, result);
}

void cumsum(const Tensor& result, const Tensor& self, int64_t dim) {
  scan("cumulative_sum", result, self, dim);
}

void cumprod(const Tensor& result, const Tensor& self, int64_t dim) {
  scan("cumulative_product", result, self, dim);
}

void logcumsumexp(Tensor& result, const Tensor& self, int64_t dim) {
  check_floating("logcumsumexp_out_cpu", self);
  at::native::resize_output(result, self.sizes());
  if (self.dim() == 0) {
    result.copy_(self);
    return;
  }
  scan("cumulative_log_sum_exp",
       result,
       self,
       at::maybe_wrap_dim(dim, self.dim()));
}

template <bool kIsMaximum>
void extremes(const Tensor& self,
              Tensor& values,
              Tensor& indices,
              int64_t dim) {
  if (self.numel() == 0) {
    return;
  }
  const Tensor out = dense_for(values);
  const Tensor places = dense_for(indices);
  launch_lines("cumulative_extreme",
               kIsMaximum ? "IS_MAXIMUM" : "IS_MINIMUM",
               out,
               self.contiguous(),  // copy: lines are found by two strides
               at::maybe_wrap_dim(dim, self.dim()),
               arg(places));
  copy_back(out, values);
  copy_back(places, indices);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::native::structured_cumsum_out, at::_ops::cumsum_out>(m);
  structured<at::native::structured_cumprod_out, at::_ops::cumprod_out>(m);
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
