// multi_margin_loss, multilabel_margin_loss and their gradients.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/reports.h"
#include "../common/dtype_check.h"
#include "../common/kernel_text.h"
#include "../common/optional_tensor.h"
#include "kernel_sources.h"

#include <ATen/core/Reduction.h>
#include <ATen/native/LossMulti.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/multi_margin_loss_backward_ops.h>
#include <ATen/ops/multi_margin_loss_ops.h>
#include <ATen/ops/multilabel_margin_loss_backward_ops.h>
#include <ATen/ops/multilabel_margin_loss_forward_ops.h>
#include <torch/library.h>

#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Scalar;
using at::Tensor;

// samples_t of margin_loss.cl.
struct Samples {
  int64_t count;
  int64_t classes;
  int64_t self[2];
  int64_t target[2];
  int64_t out[2];
  int64_t is_target[2];
  int64_t grad;
  int64_t weight;
};

// Of [samples, classes], [classes] or one class.
void set_strides(int64_t (&strides)[2], const Tensor& tensor) {
  const int64_t dims = tensor.dim();
  strides[0] = dims == 2 ? tensor.stride(0) : 0;
  strides[1] = dims > 0 ? tensor.stride(dims - 1) : 0;
}

Samples samples_of(const Tensor& self, const Tensor& out, int64_t classes) {
  Samples samples{};
  samples.count = self.numel();
  samples.classes = classes;
  set_strides(samples.self, self);
  set_strides(samples.out, out);
  return samples;
}

Tensor elements_like(const Tensor& self) {
  return at::empty(self.sizes(),
                   self.options().dtype(compute_type(self.scalar_type())));
}

// `elements` are summed over classes, and as `reduction` says over samples.
void finish(const Tensor& elements,
            int64_t classes,
            int64_t reduction,
            const Tensor& output) {
  if (reduction == at::Reduction::None && elements.dim() == 2) {
    output.copy_(elements.sum(1).div_(classes));
    return;
  }
  const int64_t samples = elements.numel() / classes;
  output.copy_(elements.sum().div_(
      classes * (reduction == at::Reduction::Mean ? samples : 1)));
}

// Of an element with respect to the loss.
at::Scalar scale_of(const Samples& samples, int64_t reduction) {
  return 1.0 / static_cast<double>(reduction == at::Reduction::Mean
                                       ? samples.count
                                       : samples.classes);
}

int64_t grad_stride(const Tensor& grad_output, int64_t reduction) {
  return reduction == at::Reduction::None && grad_output.dim() > 0
             ? grad_output.stride(0)
             : 0;
}

struct MultiMargin {
  MultiMargin(const char* name,
              const Tensor& self,
              const Tensor& target,
              const Scalar& p_scalar,
              const OptionalTensor& weight)
      : p(p_scalar.toInt()) {
    TORCH_CHECK(p == 1 || p == 2, "only p == 1 and p == 2 supported");
    int64_t count = 0;
    at::native::multi_margin_loss_shape_check(
        count, classes, self.dim(), self, target, weight);
    if (self.numel() == 0) {
      return;
    }
    check_floating(name, self);
    check_scalar_type(target, at::kLong);
    if (is_given(weight)) {
      check_scalar_type(*weight, self.scalar_type());
      has_weight = true;
    }
  }

  Samples samples(const Tensor& self,
                  const Tensor& target,
                  const OptionalTensor& weight,
                  const Tensor& out) const {
    Samples samples = samples_of(self, out, classes);
    samples.target[0] = target.dim() > 0 ? target.stride(0) : 0;
    samples.weight = has_weight && weight->dim() > 0 ? weight->stride(0) : 0;
    return samples;
  }

  int32_t p;
  int64_t classes = 0;
  int32_t has_weight = 0;
};

Tensor& multi_margin_loss_out(const Tensor& self,
                              const Tensor& target,
                              const Scalar& p,
                              const Scalar& margin,
                              const OptionalTensor& weight,
                              int64_t reduction,
                              Tensor& out) {
  const MultiMargin problem(
      "multi_margin_loss_cpu_kernel", self, target, p, weight);
  const bool is_each = reduction == at::Reduction::None && target.dim() > 0;
  at::native::resize_output(
      out, is_each ? at::IntArrayRef{target.numel()} : at::IntArrayRef{});
  if (self.numel() == 0) {
    return out.zero_();
  }
  check_scalar_type(out, self.scalar_type());
  const Tensor elements = elements_like(self);
  launch(self,
         sources::margin_loss,
         "multi_margin_loss_elements",
         {{"DTYPE", dtype_of(self)}},
         range(self.numel(), kWorkGroup),
         problem.samples(self, target, weight, elements),
         problem.p,
         scalar_argument(margin, elements.scalar_type()),
         arg(elements),
         arg_in(self),
         arg_in(target),
         arg_in(weight),
         problem.has_weight,
         reports(self, "multi_margin_loss"));
  finish(elements, problem.classes, reduction, out);
  return out;
}

Tensor multi_margin_loss(const Tensor& self,
                         const Tensor& target,
                         const Scalar& p,
                         const Scalar& margin,
                         const OptionalTensor& weight,
                         int64_t reduction) {
  Tensor out = at::empty({0}, self.options());
  return multi_margin_loss_out(self, target, p, margin, weight, reduction, out);
}

Tensor& multi_margin_loss_backward_out(const Tensor& grad_output,
                                       const Tensor& self,
                                       const Tensor& target,
                                       const Scalar& p,
                                       const Scalar& margin,
                                       const OptionalTensor& weight,
                                       int64_t reduction,
                                       Tensor& grad_input) {
  const MultiMargin problem(
      "multi_margin_loss_backward_cpu_kernel", self, target, p, weight);
  at::native::resize_output(grad_input, self.sizes());
  if (self.numel() == 0) {
    return grad_input;
  }
  check_scalar_type(grad_output, self.scalar_type());
  check_scalar_type(grad_input, self.scalar_type());
  const at::ScalarType compute = compute_type(self.scalar_type());
  Samples samples = problem.samples(self, target, weight, grad_input);
  samples.grad = grad_stride(grad_output, reduction);
  launch(self,
         sources::margin_loss,
         "multi_margin_loss_backward",
         {{"DTYPE", dtype_of(self)}},
         range(self.numel(), kWorkGroup),
         samples,
         problem.p,
         scalar_argument(margin, compute),
         arg(grad_input),
         arg_in(self),
         arg_in(target),
         arg_in(weight),
         problem.has_weight,
         arg_in(grad_output),
         scalar_argument(scale_of(samples, reduction), compute),
         reports(self, "multi_margin_loss_backward"));
  return grad_input;
}

Tensor multi_margin_loss_backward(const Tensor& grad_output,
                                  const Tensor& self,
                                  const Tensor& target,
                                  const Scalar& p,
                                  const Scalar& margin,
                                  const OptionalTensor& weight,
                                  int64_t reduction) {
  Tensor grad_input = at::empty({0}, self.options());
  return multi_margin_loss_backward_out(
      grad_output, self, target, p, margin, weight, reduction, grad_input);
}

int64_t check_multilabel(const char* name,
                         const Tensor& self,
                         const Tensor& target) {
  int64_t count = 0;
  int64_t classes = 0;
  at::native::multilabel_margin_loss_shape_check(
      count, classes, self.dim(), self, target);
  if (self.numel() > 0) {
    check_floating(name, self);
    check_scalar_type(target, at::kLong);
  }
  return classes;
}

std::tuple<Tensor&, Tensor&> multilabel_margin_loss_forward_out(
    const Tensor& self,
    const Tensor& target,
    int64_t reduction,
    Tensor& output,
    Tensor& is_target) {
  const int64_t classes = check_multilabel(
      "multilabel_margin_loss_forward_out_frame", self, target);
  at::native::resize_output(is_target, target.sizes());
  const bool is_each = reduction == at::Reduction::None && target.dim() > 1;
  at::native::resize_output(
      output, is_each ? at::IntArrayRef{self.size(0)} : at::IntArrayRef{});
  if (self.numel() == 0) {
    output.zero_();
    return {output, is_target};
  }
  check_scalar_type(output, self.scalar_type());
  check_scalar_type(is_target, self.scalar_type());
  const Tensor elements = elements_like(self);
  Samples samples = samples_of(self, elements, classes);
  set_strides(samples.target, target);
  set_strides(samples.is_target, is_target);
  launch(self,
         sources::margin_loss,
         "multilabel_margin_loss_elements",
         {{"DTYPE", dtype_of(self)}},
         range(self.numel(), kWorkGroup),
         samples,
         arg(elements),
         arg(is_target),
         arg_in(self),
         arg_in(target),
         reports(self, "multilabel_margin_loss"));
  finish(elements, classes, reduction, output);
  return {output, is_target};
}

std::tuple<Tensor, Tensor> multilabel_margin_loss_forward(const Tensor& self,
                                                          const Tensor& target,
                                                          int64_t reduction) {
  Tensor output = at::empty({0}, self.options());
  Tensor is_target = at::empty({0}, self.options());
  multilabel_margin_loss_forward_out(
      self, target, reduction, output, is_target);
  return {output, is_target};
}

Tensor& multilabel_margin_loss_backward_out(const Tensor& grad_output,
                                            const Tensor& self,
                                            const Tensor& target,
                                            int64_t reduction,
                                            const Tensor& is_target,
                                            Tensor& grad_input) {
  const int64_t classes = check_multilabel(
      "multilabel_margin_loss_backward_out_frame", self, target);
  at::checkSameSize("multilabel_margin_loss_backward_cpu_template",
                    at::TensorArg(target, "target", 3),
                    at::TensorArg(is_target, "is_target", 5));
  at::native::resize_output(grad_input, self.sizes());
  if (self.numel() == 0) {
    return grad_input;
  }
  check_scalar_type(grad_output, self.scalar_type());
  check_scalar_type(is_target, self.scalar_type());
  check_scalar_type(grad_input, self.scalar_type());
  Samples samples = samples_of(self, grad_input, classes);
  set_strides(samples.target, target);
  set_strides(samples.is_target, is_target);
  samples.grad = grad_stride(grad_output, reduction);
  launch(self,
         sources::margin_loss,
         "multilabel_margin_loss_backward",
         {{"DTYPE", dtype_of(self)}},
         range(self.numel(), kWorkGroup),
         samples,
         arg(grad_input),
         arg_in(is_target),
         arg_in(self),
         arg_in(target),
         arg_in(grad_output),
         scalar_argument(scale_of(samples, reduction),
                         compute_type(self.scalar_type())),
         reports(self, "multilabel_margin_loss_backward"));
  return grad_input;
}

Tensor multilabel_margin_loss_backward(const Tensor& grad_output,
                                       const Tensor& self,
                                       const Tensor& target,
                                       int64_t reduction,
                                       const Tensor& is_target) {
  Tensor grad_input = at::empty({0}, self.options());
  return multilabel_margin_loss_backward_out(
      grad_output, self, target, reduction, is_target, grad_input);
}

template <class Op, auto Function>
void implement(torch::Library& m, const char* name) {
  m.impl(name, &WithFallback<Op, Function>::call);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  implement<at::_ops::multi_margin_loss, &ops::multi_margin_loss>(
      m, "multi_margin_loss");
  implement<at::_ops::multi_margin_loss_out, &ops::multi_margin_loss_out>(
      m, "multi_margin_loss.out");
  implement<at::_ops::multi_margin_loss_backward,
            &ops::multi_margin_loss_backward>(m, "multi_margin_loss_backward");
  implement<at::_ops::multi_margin_loss_backward_grad_input,
            &multi_margin_loss_backward_out>(
      m, "multi_margin_loss_backward.grad_input");
  implement<at::_ops::multilabel_margin_loss_forward,
            &ops::multilabel_margin_loss_forward>(
      m, "multilabel_margin_loss_forward");
  implement<at::_ops::multilabel_margin_loss_forward_output,
            &multilabel_margin_loss_forward_out>(
      m, "multilabel_margin_loss_forward.output");
  implement<at::_ops::multilabel_margin_loss_backward,
            &ops::multilabel_margin_loss_backward>(
      m, "multilabel_margin_loss_backward");
  implement<at::_ops::multilabel_margin_loss_backward_grad_input,
            &multilabel_margin_loss_backward_out>(
      m, "multilabel_margin_loss_backward.grad_input");
}

}  // namespace torch_opencl::ops
