#include "kernel_sources.h"

#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/group_rows.h"
#include "../common/lanes.h"
#include "../common/non_temporal.h"
#include "../common/rows.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_meta.h>
#include <ATen/ops/_softmax_ops.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Elements of a row that a work-item of softmax_short keeps: KEPT.
constexpr int64_t kMostKept = 64;
// And, of all its rows, in vectors.
constexpr int64_t kMostVectors = 1024;
// And one of softmax_contiguous: KEPT_ROW.
constexpr int64_t kMostKeptAlong = 2048;

struct Variant {
  const char* forward;
  const char* backward;
  int rows_a_job;  // rows of a work-item
  int work_group;
};

// Neighbouring vectors of rows of a work-item of softmax_short_backward: long
// runs of memory, which prefetchers like, while each core has work.
int columns_of(const RowsProblem& problem, int64_t units) {
  int columns = 4;
  while (columns < 32 && 2 * columns * problem.row_size() <= kMostVectors &&
         2 * columns * kLanes <= problem.inner_size() &&
         problem.blocks(2 * columns * kLanes) >= 8 * units) {
    columns *= 2;
  }
  return columns;
}

Variant choose(const RowsProblem& problem, int64_t units, bool backward) {
  if (problem.rows_contiguous()) {
    return {"softmax_contiguous", "softmax_contiguous_backward", 1, 4};
  }
  if (problem.row_size() <= kMostKept) {
    const int columns = backward ? columns_of(problem, units) : 4;
    return {"softmax_short", "softmax_short_backward", columns * kLanes, 1};
  }
  return {"softmax_strided", "softmax_strided_backward", kLanes, 4};
}

// On GPUs. The first tensor is the one written.
template <class... Arguments>
void launch_groups(const RowsProblem& problem,
                   bool backward,
                   bool log,
                   const Tensor& written,
                   const Tensor& read,
                   const Arguments&... arguments) {
  const bool is_along = problem.rows_contiguous();
  const GroupRows groups(problem.row_size(),
                         is_along ? 1 : problem.inner_size());
  problem.with_index([&](auto index) {
    using Index = decltype(index);
    const auto launch_over = [&](const auto&... layouts) {
      launch(written,
             sources::softmax_groups,
             backward ? (groups.keeps ? "softmax_kept_backward"
                                      : "softmax_twice_backward")
                      : (groups.keeps ? "softmax_kept" : "softmax_twice"),
             {{"DTYPE", dtype_of(read)},
              {"OUT_DTYPE", dtype_of(written)},
              {"LOG", log},
              {"INDEX64", sizeof(Index) == 8},
              {"WG_SIZE", groups.work_group}},
             range(groups.groups(problem.count()) * groups.work_group,
                   groups.work_group),
             static_cast<Index>(problem.count()),
             static_cast<int32_t>(problem.row_size()),
             static_cast<int32_t>(groups.span),
             static_cast<int32_t>(is_along),
             problem.rank(),
             problem.sizes(),
             layouts...,
             arg(written),
             arg_in(read),
             arguments...);
    };
    const auto step = [&](int tensor) {
      return static_cast<Index>(problem.row_stride(tensor));
    };
    if constexpr (sizeof...(arguments) == 0) {
      launch_over(step(0),
                  problem.strides<Index>(0),
                  step(1),
                  problem.strides<Index>(1));
    } else {
      launch_over(step(0),
                  problem.strides<Index>(0),
                  step(1),
                  problem.strides<Index>(1),
                  step(2),
                  problem.strides<Index>(2));
    }
  });
}

template <class... Arguments>
void launch_rows(const RowsProblem& problem,
                 bool backward,
                 bool log,
                 const Tensor& written,
                 const Tensor& read,
                 const Arguments&... arguments) {
  const runtime::Device& device = aten::device_of(written);
  if (!device.is_cpu()) {
    launch_groups(problem, backward, log, written, read, arguments...);
    return;
  }
  const Variant variant =
      choose(problem, device.info().compute_units, backward);
  const bool keeps = !log && !backward && problem.row_size() <= kMostKeptAlong;
  problem.with_index([&](auto index) {
    using Index = decltype(index);
    launch(written,
           sources::softmax,
           backward ? variant.backward : variant.forward,
           {{"DTYPE", dtype_of(read)},
            {"OUT_DTYPE", dtype_of(written)},
            {"LOG", log},
            {"LANES", kLanes},
            {"NON_TEMPORAL",
             is_non_temporal(device, written.scalar_type(), written.numel())},
            {"INDEX64", sizeof(Index) == 8},
            {"WG_SIZE", variant.work_group},
            {"COLUMNS", std::max(1, variant.rows_a_job / kLanes)},
            {"KEPT_ROW", keeps ? kMostKeptAlong : 0}},
           range(problem.blocks(variant.rows_a_job), variant.work_group),
           problem.rows<Index>(variant.rows_a_job),
           arg(written),
           arg_in(read),
           arguments...);
  });
}

void softmax(const Tensor& self, int64_t dim, bool log, const Tensor& out) {
  check_floating(
      log ? "log_softmax_lastdim_kernel_impl" : "softmax_lastdim_kernel_impl",
      self);
  if (self.numel() == 0) {
    return;
  }
  const RowsProblem problem(log ? "log_softmax" : "softmax",
                            {out, self},
                            at::maybe_wrap_dim(dim, self.dim()));
  launch_rows(problem, false, log, out, self);
}

void softmax_backward(const Tensor& grad_output,
                      const Tensor& output,
                      int64_t dim,
                      bool log,
                      const Tensor& grad_input) {
  check_floating(log ? "log_softmax_backward_lastdim_kernel_impl"
                     : "softmax_backward_lastdim_kernel_impl",
                 grad_output);
  check_scalar_type(output, grad_output.scalar_type());
  if (grad_output.numel() == 0) {
    return;
  }
  const RowsProblem problem(log ? "log_softmax_backward" : "softmax_backward",
                            {grad_input, grad_output, output},
                            at::maybe_wrap_dim(dim, output.dim()));
  launch_rows(problem, true, log, grad_input, grad_output, arg_in(output));
}

template <class Meta, bool kLog>
struct softmax_out : Meta {
  void impl(const Tensor& self, int64_t dim, bool, const Tensor& out) {
    softmax(self, dim, kLog, out);
  }
};

template <class Meta, bool kLog>
struct softmax_backward_out : Meta {
  void impl(const Tensor& grad_output,
            const Tensor& output,
            int64_t dim,
            at::ScalarType,
            const Tensor& grad_input) {
    softmax_backward(grad_output, output, dim, kLog, grad_input);
  }
};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<softmax_out<at::meta::structured__softmax, false>,
             at::_ops::_softmax_out>(m);
  structured<softmax_out<at::meta::structured__log_softmax, true>,
             at::_ops::_log_softmax_out>(m);
  structured<
      softmax_backward_out<at::meta::structured__softmax_backward_data, false>,
      at::_ops::_softmax_backward_data_out>(m);
  structured<
      softmax_backward_out<at::meta::structured__log_softmax_backward_data,
                           true>,
      at::_ops::_log_softmax_backward_data_out>(m);
}

}  // namespace
}  // namespace torch_opencl::ops
