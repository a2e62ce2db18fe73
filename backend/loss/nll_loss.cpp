#include "kernel_sources.h"

#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/reports.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/optional_tensor.h"

#include <ATen/core/Reduction.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss2d_backward_ops.h>
#include <ATen/ops/nll_loss2d_forward_ops.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_meta.h>
#include <ATen/ops/nll_loss_forward_ops.h>

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kSamplesPerItem = 32;
// Fewer in series on a GPU: the load of a sample depends on that of its target.
constexpr int64_t kSamplesPerGpuItem = 4;
constexpr int64_t kMostGroups = 256;

// samples_t of nll_loss.cl.
template <class Index>
struct Samples {
  int64_t ignore_index;
  Index count;
  Index weight_stride;
  Index class_stride;
  Index self_strides[3];
  Index target_strides[3];
  Index out_strides[3];
  int32_t classes;
  int32_t height;
  int32_t width;
  int32_t has_weight;
};

// Strides by (batch, height, width), 0 where the tensor has no such dimension.
using Strides = std::array<int64_t, 3>;

struct NllLossProblem {
  // `self` is [C], [N, C] or [N, C, H, W]; `out` one number for all samples
  // (no dimensions) or shaped like the target.
  NllLossProblem(const Tensor& self,
                 const Tensor& target,
                 const Tensor& weight,
                 int64_t ignore_index,
                 const Tensor& out)
      : weight(weight.defined() ? weight.reshape(-1) : weight),
        ignore_index(ignore_index) {
    const int64_t dims = self.dim();
    const int64_t class_dim = dims == 1 ? 0 : 1;
    classes = self.size(class_dim);
    class_stride = self.stride(class_dim);
    if (dims >= 2) {
      sizes[0] = self.size(0);
      self_strides[0] = self.stride(0);
    }
    if (dims == 4) {
      for (int i = 1; i < 3; ++i) {
        sizes[i] = self.size(i + 1);
        self_strides[i] = self.stride(i + 1);
      }
    }
    set(target_strides, target, dims);
    if (out.defined() && out.dim() > 0 && dims > 1) {
      set(out_strides, out, dims);
    }
    int64_t last = 1 + (classes - 1) * class_stride;
    for (int i = 0; i < 3; ++i) {
      const int64_t steps = sizes[i] - 1;
      last += steps *
              std::max({self_strides[i], target_strides[i], out_strides[i]});
    }
    extent = last;
  }

  int64_t count() const { return sizes[0] * sizes[1] * sizes[2]; }

  template <class Index>
  Samples<Index> samples() const {
    Samples<Index> s{};
    s.ignore_index = ignore_index;
    s.count = static_cast<Index>(count());
    s.class_stride = static_cast<Index>(class_stride);
    s.has_weight = weight.defined();
    s.weight_stride =
        static_cast<Index>(weight.defined() ? weight.stride(0) : 0);
    for (int i = 0; i < 3; ++i) {
      s.self_strides[i] = static_cast<Index>(self_strides[i]);
      s.target_strides[i] = static_cast<Index>(target_strides[i]);
      s.out_strides[i] = static_cast<Index>(out_strides[i]);
    }
    s.classes = static_cast<int32_t>(classes);
    s.height = static_cast<int32_t>(sizes[1]);
    s.width = static_cast<int32_t>(sizes[2]);
    return s;
  }

  template <class... Arguments>
  void launch(const Tensor& self,
              const Tensor& target,
              const char* kernel_name,
              int64_t items,
              const Arguments&... arguments) const {
    // Samples may be more than elements; a step goes beyond the last.
    const int64_t end = std::max(items, count()) + kMostGroups * kWorkGroup;
    with_index(std::max(extent, end), [&](auto index) {
      using Index = decltype(index);
      aten::launch(self,
                   sources::nll_loss,
                   kernel_name,
                   {{"DTYPE", dtype_of(self)},
                    {"TARGET_DTYPE", dtype_of(target)},
                    {"INDEX64", sizeof(Index) == 8},
                    {"WG_SIZE", kWorkGroup}},
                   range(items, kWorkGroup),
                   samples<Index>(),
                   arguments...);
    });
  }

  Tensor weight;
  int64_t ignore_index;
  int64_t classes;
  int64_t class_stride;
  int64_t extent;
  Strides sizes{1, 1, 1};
  Strides self_strides{0, 0, 0};
  Strides target_strides{0, 0, 0};
  Strides out_strides{0, 0, 0};

 private:
  static void set(Strides& strides, const Tensor& tensor, int64_t self_dims) {
    if (self_dims >= 2) {
      strides[0] = tensor.stride(0);
    }
    if (self_dims == 4) {
      strides[1] = tensor.stride(1);
      strides[2] = tensor.stride(2);
    }
  }
};

void check_types(const char* name,
                 const Tensor& self,
                 const Tensor& target,
                 std::initializer_list<Tensor> floats) {
  check_floating(name, self);
  TORCH_CHECK(
      target.scalar_type() == at::kLong || target.scalar_type() == at::kByte,
      "expected target dtype to be Long or Byte, but got ",
      c10::toString(target.scalar_type()));
  for (const Tensor& tensor : floats) {
    if (tensor.defined()) {
      check_scalar_type(tensor, self.scalar_type());
    }
  }
}

struct NllLossOptions {
  Tensor target;
  Tensor weight;  // undefined: ones
  int64_t reduction;
  int64_t ignore_index;
};

void forward(const char* op,
             const Tensor& self,
             const NllLossOptions& options,
             const Tensor& output,
             const Tensor& total_weight) {
  const auto& [target, weight, reduction, ignore_index] = options;
  const NllLossProblem problem(self, target, weight, ignore_index, output);
  const int64_t count = problem.count();
  if (reduction == at::Reduction::None && self.dim() > 1) {
    total_weight.zero_();
    if (count > 0) {
      problem.launch(self,
                     target,
                     "nll_loss_each",
                     count,
                     arg(output),
                     arg_in(self),
                     arg_in(target),
                     arg_in(problem.weight),
                     reports(self, op));
    }
    return;
  }
  if (count == 0) {
    output.fill_(reduction == at::Reduction::Mean
                     ? std::numeric_limits<double>::quiet_NaN()
                     : 0.0);
    total_weight.zero_();
    return;
  }
  const int64_t per_item =
      aten::device_of(self).is_cpu() ? kSamplesPerItem : kSamplesPerGpuItem;
  const int64_t groups =
      std::clamp<int64_t>(count / (kWorkGroup * per_item), 1, kMostGroups);
  const Tensor partials = at::empty(
      {groups, 2}, self.options().dtype(compute_type(self.scalar_type())));
  problem.launch(self,
                 target,
                 "nll_loss_partials",
                 groups * kWorkGroup,
                 arg(partials),
                 arg_in(self),
                 arg_in(target),
                 arg_in(problem.weight),
                 reports(self, op));
  launch(self,
         sources::nll_loss,
         "nll_loss_finish",
         {{"DTYPE", dtype_of(self)}, {"WG_SIZE", kWorkGroup}},
         range(kWorkGroup, kWorkGroup),
         static_cast<int32_t>(groups),
         static_cast<int32_t>(reduction == at::Reduction::Mean),
         arg(output),
         arg(total_weight),
         arg_in(partials));
}

void backward(const char* op,
              const Tensor& grad_output,
              const NllLossOptions& options,
              const Tensor& total_weight,
              const Tensor& grad_input) {
  const auto& [target, weight, reduction, ignore_index] = options;
  // A GPU saves a pass over memory by writing the zeros, too.
  const bool is_dense = !aten::device_of(grad_input).is_cpu();
  if (!is_dense) {
    grad_input.zero_();
  }
  const NllLossProblem problem(
      grad_input,
      target,
      weight,
      ignore_index,
      reduction == at::Reduction::None ? grad_output : Tensor());
  if (problem.count() == 0 || grad_input.numel() == 0) {
    return;
  }
  problem.launch(grad_input,
                 target,
                 "nll_loss_backward",
                 is_dense ? grad_input.numel() : problem.count(),
                 static_cast<int32_t>(reduction == at::Reduction::Mean),
                 static_cast<int32_t>(is_dense),
                 arg(grad_input),
                 arg_in(grad_output),
                 arg_in(target),
                 arg_in(problem.weight),
                 arg_in(total_weight),
                 reports(grad_input, op));
}

struct nll_loss_forward_out : at::meta::structured_nll_loss_forward {
  void impl(const Tensor& self,
            const Tensor& target,
            at::OptionalTensorRef weight,
            int64_t reduction,
            int64_t ignore_index,
            const Tensor& output,
            const Tensor& total_weight) {
    check_types("nll_loss_out_frame", self, target, {weight.getTensorRef()});
    forward("nll_loss",
            self,
            {target, weight.getTensorRef(), reduction, ignore_index},
            output,
            total_weight);
  }
};

struct nll_loss_backward_out : at::meta::structured_nll_loss_backward {
  void impl(const Tensor& grad_output,
            const Tensor& self,
            const Tensor& target,
            at::OptionalTensorRef weight,
            int64_t reduction,
            int64_t ignore_index,
            const Tensor& total_weight,
            const Tensor& grad_input) {
    check_types("nll_loss_backward_out_frame",
                self,
                target,
                {grad_output, weight.getTensorRef(), total_weight});
    backward("nll_loss_backward",
             grad_output,
             {target, weight.getTensorRef(), reduction, ignore_index},
             total_weight,
             grad_input);
  }
};

void check_2d(const Tensor& self, const Tensor& target, const Tensor& weight) {
  TORCH_CHECK(target.dim() == 3,
              "only batches of spatial targets supported (3D tensors) but got "
              "targets of dimension: ",
              target.dim());
  TORCH_CHECK(self.dim() == 4,
              "only batches of spatial inputs supported (4D tensors), but got "
              "input of dimension: ",
              self.dim());
  TORCH_CHECK(!weight.defined() || weight.numel() == self.size(1),
              "weight tensor should be defined either for all or no classes");
  TORCH_CHECK(self.size(0) == target.size(0) &&
                  self.size(2) == target.size(1) &&
                  self.size(3) == target.size(2),
              "size mismatch (got input: ",
              self.sizes(),
              " , target: ",
              target.sizes());
}

std::tuple<Tensor&, Tensor&> nll_loss2d_forward_out(
    const Tensor& self,
    const Tensor& target,
    const std::optional<Tensor>& weight_opt,
    int64_t reduction,
    int64_t ignore_index,
    Tensor& output,
    Tensor& total_weight) {
  const Tensor& weight = value_or_undefined(weight_opt);
  check_2d(self, target, weight);
  check_types("nll_loss2d_forward_out_frame",
              self,
              target,
              {weight, output, total_weight});
  at::native::resize_output(
      output,
      reduction == at::Reduction::None ? target.sizes() : at::IntArrayRef());
  at::native::resize_output(total_weight, {});
  forward("nll_loss2d",
          self,
          {target, weight, reduction, ignore_index},
          output,
          total_weight);
  return {output, total_weight};
}

std::tuple<Tensor, Tensor> nll_loss2d_forward(
    const Tensor& self,
    const Tensor& target,
    const std::optional<Tensor>& weight,
    int64_t reduction,
    int64_t ignore_index) {
  Tensor output = at::empty({0}, self.options());
  Tensor total_weight = at::empty({}, self.options());
  nll_loss2d_forward_out(
      self, target, weight, reduction, ignore_index, output, total_weight);
  return {output, total_weight};
}

Tensor& nll_loss2d_backward_out(const Tensor& grad_output,
                                const Tensor& self,
                                const Tensor& target,
                                const std::optional<Tensor>& weight_opt,
                                int64_t reduction,
                                int64_t ignore_index,
                                const Tensor& total_weight,
                                Tensor& grad_input) {
  const Tensor& weight = value_or_undefined(weight_opt);
  check_2d(self, target, weight);
  TORCH_CHECK(total_weight.numel() == 1,
              "expected total_weight to be a single element tensor, got: ",
              total_weight.sizes(),
              " (",
              total_weight.numel(),
              " elements)");
  check_types("nll_loss2d_backward_out_frame",
              self,
              target,
              {grad_output, weight, total_weight, grad_input});
  if (reduction == at::Reduction::None) {
    TORCH_CHECK(grad_output.dim() == 3,
                "grad_output must have same dimension as target (3) but got "
                "dimension: ",
                grad_output.sizes());
    TORCH_CHECK(grad_output.sizes() == target.sizes(),
                "size mismatch (got grad_output: ",
                grad_output.sizes(),
                " target: ",
                target.sizes());
  } else {
    TORCH_CHECK(grad_output.dim() <= 1 && grad_output.numel() == 1,
                "Expected a single element grad_output tensor, but got: ",
                grad_output.sizes());
  }
  at::native::resize_output(grad_input, self.sizes());
  backward("nll_loss2d_backward",
           grad_output,
           {target, weight, reduction, ignore_index},
           total_weight,
           grad_input);
  return grad_input;
}

Tensor nll_loss2d_backward(const Tensor& grad_output,
                           const Tensor& self,
                           const Tensor& target,
                           const std::optional<Tensor>& weight,
                           int64_t reduction,
                           int64_t ignore_index,
                           const Tensor& total_weight) {
  Tensor grad_input = at::empty_like(self);
  return nll_loss2d_backward_out(grad_output,
                                 self,
                                 target,
                                 weight,
                                 reduction,
                                 ignore_index,
                                 total_weight,
                                 grad_input);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<nll_loss_forward_out, at::_ops::nll_loss_forward_output>(m);
  structured<nll_loss_backward_out, at::_ops::nll_loss_backward_grad_input>(m);
  native<at::_ops::nll_loss2d_forward, &nll_loss2d_forward>(m);
  native<at::_ops::nll_loss2d_forward_output, &nll_loss2d_forward_out>(m);
  native<at::_ops::nll_loss2d_backward, &nll_loss2d_backward>(m);
  native<at::_ops::nll_loss2d_backward_grad_input, &nll_loss2d_backward_out>(m);
}

}  // namespace
}  // namespace torch_opencl::ops
