#include "kernel_sources.h"

#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/rows.h"
#include "../common/streamed.h"

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

constexpr int kLanes = 16;  // on CPUs

// Rows shorter than this leave a work-group mostly idle.
constexpr int64_t kSmallestGroupRow = 48;

// Elements of a row that a work-item of softmax_short keeps: KEPT.
constexpr int64_t kMostKept = 64;
// And, of all its rows, in vectors.
constexpr int64_t kMostVectors = 1024;
// And one of softmax_along: KEPT_ROW.
constexpr int64_t kMostKeptAlong = 2048;

struct Variant {
  const char* forward;
  const char* backward;
  int lanes;       // in the program
  int rows_a_job;  // rows of a work-item, or work-group
  int work_group;
  int items_a_job;
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

Variant choose(const RowsProblem& problem,
               const runtime::Device& device,
               bool backward) {
  const bool is_cpu = device.is_cpu();
  if (is_cpu && problem.rows_contiguous()) {
    return {"softmax_along", "softmax_along_backward", kLanes, 1, 4, 1};
  }
  if (is_cpu && problem.row_size() <= kMostKept) {
    const int columns =
        backward ? columns_of(problem, device.info().compute_units) : 4;
    return {"softmax_short",
            "softmax_short_backward",
            kLanes,
            columns * kLanes,
            1,
            1};
  }
  if (is_cpu) {
    return {"softmax_across", "softmax_across_backward", kLanes, kLanes, 4, 1};
  }
  if (problem.rows_contiguous() && problem.row_size() >= kSmallestGroupRow) {
    return {"softmax_group", "softmax_group_backward", 1, 1, 128, 128};
  }
  return {"softmax_across", "softmax_across_backward", 1, 1, 64, 1};
}

template <class... Arguments>
void launch_rows(const RowsProblem& problem,
                 const Variant& variant,
                 bool backward,
                 bool log,
                 const Tensor& written,
                 const Tensor& read,
                 const Arguments&... arguments) {
  const bool keeps = !log && !backward && problem.row_size() <= kMostKeptAlong;
  const auto with_index = [&](auto index) {
    using Index = decltype(index);
    launch(written,
           sources::softmax,
           backward ? variant.backward : variant.forward,
           {{"DTYPE", dtype_of(read)},
            {"OUT_DTYPE", dtype_of(written)},
            {"LOG", log},
            {"LANES", variant.lanes},
            {"STREAM",
             is_streamed(aten::device_of(written),
                         written.scalar_type(),
                         written.numel())},
            {"INDEX64", sizeof(Index) == 8},
            {"WG_SIZE", variant.work_group},
            {"COLUMNS", std::max(1, variant.rows_a_job / variant.lanes)},
            {"KEPT_ROW", keeps ? kMostKeptAlong : 0}},
           range(problem.blocks(variant.rows_a_job) * variant.items_a_job,
                 variant.work_group),
           problem.rows<Index>(variant.rows_a_job),
           arg(written),
           arg_in(read),
           arguments...);
  };
  if (problem.fits_int32()) {
    with_index(int32_t());
  } else {
    with_index(int64_t());
  }
}

void softmax(const Tensor& self, int64_t dim, bool log, const Tensor& out) {
  check_floating(
      log ? "log_softmax_lastdim_kernel_impl" : "softmax_lastdim_kernel_impl",
      self);
  if (self.numel() == 0) {
    return;
  }
  const RowsProblem problem({out, self}, at::maybe_wrap_dim(dim, self.dim()));
  const Variant variant = choose(problem, aten::device_of(self), false);
  launch_rows(problem, variant, false, log, out, self);
}

void softmax_backward(const Tensor& grad_output,
                      const Tensor& output,
                      int64_t dim,
                      bool log,
                      const Tensor& grad_input) {
  check_floating(log ? "log_softmax_backward_lastdim_kernel_impl"
                     : "softmax_backward_lastdim_kernel_impl",
                 grad_output);
  if (grad_output.numel() == 0) {
    return;
  }
  const RowsProblem problem({grad_input, grad_output, output},
                            at::maybe_wrap_dim(dim, output.dim()));
  const Variant variant = choose(problem, aten::device_of(output), true);
  launch_rows(
      problem, variant, true, log, grad_input, grad_output, arg_in(output));
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
