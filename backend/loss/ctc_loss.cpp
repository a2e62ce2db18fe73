// _ctc_loss and its gradient.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/reports.h"
#include "../common/dtype_check.h"
#include "kernel_sources.h"

#include <ATen/TensorUtils.h>
#include <ATen/ops/_ctc_loss_backward_ops.h>
#include <ATen/ops/_ctc_loss_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

constexpr at::CheckedFrom kChecked = "ctc_loss_allocate_outputs";

// Work-items that share the states of a sample.
int64_t state_items(const Tensor& tensor) {
  const runtime::Device& device = aten::device_of(tensor);
  if (!device.is_cpu()) {
    return 64;
  }
  return device.info().vectorizes_work_items ? 16 : 1;
}

struct CtcLossProblem {
  // layout_t of ctc_loss.cl.
  struct Layout {
    int64_t steps;
    int64_t batch;
    int64_t labels;
    int64_t states;
    int64_t log_probs[3];
    int64_t target;
    int64_t grad;
    int64_t blank;
  };

  CtcLossProblem(const Tensor& log_probs,
                 const Tensor& targets,
                 IntArrayRef input_lengths,
                 IntArrayRef target_lengths,
                 int64_t blank)
      : log_probs(log_probs), targets(targets) {
    check(input_lengths, target_lengths, blank);
    for (int i = 0; i < 3; ++i) {
      layout.log_probs[i] = log_probs.stride(i);
    }
    layout.steps = log_probs.size(0);
    layout.batch = log_probs.size(1);
    layout.labels = log_probs.size(2);
    layout.states = 2 * longest_target + 1;
    layout.target = targets.stride(targets.dim() - 1);
    layout.blank = blank;
    Tensor table =
        at::empty({3, layout.batch}, at::TensorOptions().dtype(at::kLong));
    int64_t* row = table.mutable_data_ptr<int64_t>();
    std::copy(input_lengths.begin(), input_lengths.end(), row);
    std::copy(target_lengths.begin(), target_lengths.end(), row + layout.batch);
    int64_t position = 0;
    for (int64_t n = 0; n < layout.batch; ++n) {
      row[2 * layout.batch + n] = position;
      position += targets.dim() == 1 ? target_lengths[n] * layout.target
                                     : targets.stride(0);
    }
    lengths = table.to(log_probs.device());
  }

  template <class... Arguments>
  void launch(const char* kernel,
              size_t items,
              int64_t work_group,
              const Arguments&... arguments) const {
    aten::launch(log_probs,
                 sources::ctc_loss,
                 kernel,
                 {{"DTYPE", dtype_of(log_probs)},
                  {"TARGET_DTYPE", dtype_of(targets)},
                  {"WG_SIZE", work_group}},
                 range(items, work_group),
                 layout,
                 arguments...);
  }

  Tensor log_probs;
  Tensor targets;
  Tensor lengths;
  Layout layout{};
  int64_t longest_target = 0;

 private:
  void check(IntArrayRef input_lengths,
             IntArrayRef target_lengths,
             int64_t blank);
};

void check_not_negative(const char* lengths, int64_t length) {
  TORCH_CHECK(length >= 0,
              "Expected ",
              lengths,
              " to have value at least 0, but got value ",
              length,
              " (while checking arguments for ",
              kChecked,
              ")");
}

void check_targets_size(const at::TensorArg& targets,
                        int64_t batch,
                        int64_t all_targets,
                        int64_t longest) {
  if (targets->dim() == 1) {
    at::checkSize(kChecked, targets, 0, all_targets);
    return;
  }
  at::checkSize(kChecked, targets, 0, batch);
  TORCH_CHECK(targets->size(1) >= longest,
              "Expected tensor to have size at least ",
              longest,
              " at dimension 1, but got size ",
              targets->size(1),
              " for ",
              targets,
              " (while checking arguments for ",
              kChecked,
              ")");
}

void CtcLossProblem::check(IntArrayRef input_lengths,
                           IntArrayRef target_lengths,
                           int64_t blank) {
  TORCH_CHECK(log_probs.numel() > 0, "log_probs tensor must not be empty");
  const at::TensorArg log_probs_arg(log_probs, "log_probs", 1);
  const at::TensorArg targets_arg(targets, "targets", 2);
  at::checkScalarType(
      kChecked,
      targets_arg,
      targets.scalar_type() == at::kLong ? at::kLong : at::kInt);
  at::checkDim(kChecked, log_probs_arg, 3);
  at::checkDimRange(kChecked, targets_arg, 1, 3);
  const int64_t batch = log_probs.size(1);
  TORCH_CHECK(blank >= 0 && blank < log_probs.size(2),
              "blank must be in label range");
  TORCH_CHECK(static_cast<int64_t>(input_lengths.size()) == batch,
              "input_lengths must be of size batch_size");
  TORCH_CHECK(static_cast<int64_t>(target_lengths.size()) == batch,
              "target_lengths must be of size batch_size");
  int64_t all_targets = 0;
  for (const int64_t length : target_lengths) {
    check_not_negative("target_lengths", length);
    longest_target = std::max(longest_target, length);
    all_targets += length;
  }
  check_targets_size(targets_arg, batch, all_targets, longest_target);
  for (const int64_t length : input_lengths) {
    check_not_negative("input_lengths", length);
    TORCH_CHECK(length <= log_probs.size(0),
                "Expected input_lengths to have value at most ",
                log_probs.size(0),
                ", but got value ",
                length,
                " (while checking arguments for ",
                kChecked,
                ")");
  }
  const at::ScalarType type = log_probs.scalar_type();
  check_implemented(
      type == at::kFloat || type == at::kDouble, "ctc_loss_cpu", type);
}

std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs,
                                    const Tensor& targets,
                                    IntArrayRef input_lengths,
                                    IntArrayRef target_lengths,
                                    int64_t blank,
                                    bool /*zero_infinity*/) {
  const CtcLossProblem problem(
      log_probs, targets, input_lengths, target_lengths, blank);
  const auto& layout = problem.layout;
  Tensor loss = at::empty({layout.batch}, log_probs.options());
  Tensor log_alpha = at::empty({layout.batch, layout.steps, layout.states},
                               log_probs.options());
  const int64_t items = state_items(log_probs);
  problem.launch("ctc_loss_alpha",
                 layout.batch * items,
                 items,
                 arg(loss),
                 arg(log_alpha),
                 arg_in(log_probs),
                 arg_in(targets),
                 arg_in(problem.lengths),
                 reports(log_probs, "ctc_loss"));
  return {loss, log_alpha};
}

Tensor ctc_loss_backward(const Tensor& grad,
                         const Tensor& log_probs,
                         const Tensor& targets,
                         IntArrayRef input_lengths,
                         IntArrayRef target_lengths,
                         const Tensor& neg_log_likelihood,
                         const Tensor& log_alpha,
                         int64_t blank,
                         bool zero_infinity) {
  CtcLossProblem problem(
      log_probs, targets, input_lengths, target_lengths, blank);
  auto& layout = problem.layout;
  layout.grad = grad.dim() > 0 ? grad.stride(0) : 0;
  const Tensor alpha = log_alpha.contiguous();  // copy: is so from _ctc_loss
  const Tensor loss = neg_log_likelihood.contiguous();  // copy: likewise
  const Tensor beta = at::empty_like(alpha);
  Tensor collected = at::full(log_probs.sizes(),
                              -std::numeric_limits<double>::infinity(),
                              log_probs.options());
  const int64_t items = state_items(log_probs);
  problem.launch("ctc_loss_beta",
                 layout.batch * items,
                 items,
                 arg(beta),
                 arg_in(log_probs),
                 arg_in(targets),
                 arg_in(problem.lengths),
                 reports(log_probs, "ctc_loss_backward"));
  problem.launch("ctc_loss_collect",
                 layout.steps * layout.batch,
                 kWorkGroup,
                 arg(collected),
                 arg_in(alpha),
                 arg_in(beta),
                 arg_in(log_probs),
                 arg_in(targets),
                 arg_in(problem.lengths));
  problem.launch("ctc_loss_gradient",
                 log_probs.numel(),
                 kWorkGroup,
                 static_cast<int32_t>(zero_infinity),
                 arg(collected),
                 arg_in(grad),
                 arg_in(loss),
                 arg_in(log_probs),
                 arg_in(problem.lengths));
  return collected;
}

// The host needs the lengths, so this waits where they are on a device.
Tensor on_host(const Tensor& lengths, const char* name) {
  TORCH_CHECK(at::isIntegralType(lengths.scalar_type(), /*includeBool=*/false),
              name,
              " must be integral");
  return lengths.to(at::Device(at::kCPU), at::kLong)
      .contiguous();  // copy: for an array of the host
}

IntArrayRef numbers(const Tensor& host) {
  return {host.const_data_ptr<int64_t>(), static_cast<size_t>(host.numel())};
}

std::tuple<Tensor, Tensor> ctc_loss_tensor(const Tensor& log_probs,
                                           const Tensor& targets,
                                           const Tensor& input_lengths,
                                           const Tensor& target_lengths,
                                           int64_t blank,
                                           bool zero_infinity) {
  const Tensor inputs = on_host(input_lengths, "input_lengths");
  const Tensor labels = on_host(target_lengths, "target_lengths");
  return ctc_loss(log_probs,
                  targets,
                  numbers(inputs),
                  numbers(labels),
                  blank,
                  zero_infinity);
}

Tensor ctc_loss_backward_tensor(const Tensor& grad,
                                const Tensor& log_probs,
                                const Tensor& targets,
                                const Tensor& input_lengths,
                                const Tensor& target_lengths,
                                const Tensor& neg_log_likelihood,
                                const Tensor& log_alpha,
                                int64_t blank,
                                bool zero_infinity) {
  const Tensor inputs = on_host(input_lengths, "input_lengths");
  const Tensor labels = on_host(target_lengths, "target_lengths");
  return ctc_loss_backward(grad,
                           log_probs,
                           targets,
                           numbers(inputs),
                           numbers(labels),
                           neg_log_likelihood,
                           log_alpha,
                           blank,
                           zero_infinity);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_ctc_loss", &WithFallback<at::_ops::_ctc_loss, &ctc_loss>::call);
  m.impl("_ctc_loss.Tensor",
         &WithFallback<at::_ops::_ctc_loss_Tensor, &ctc_loss_tensor>::call);
  m.impl("_ctc_loss_backward",
         &WithFallback<at::_ops::_ctc_loss_backward, &ctc_loss_backward>::call);
  m.impl("_ctc_loss_backward.Tensor",
         &WithFallback<at::_ops::_ctc_loss_backward_Tensor,
                       &ctc_loss_backward_tensor>::call);
}

}  // namespace torch_opencl::ops
