// Weight normalisation: a direction of every slice along the first or last
// dimension, and its length.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"

#include <ATen/ops/_weight_norm_interface_backward_ops.h>
#include <ATen/ops/_weight_norm_interface_ops.h>
#include <ATen/ops/norm_except_dim.h>
#include <torch/library.h>

#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// In the type of kernels' arithmetic, as `norm` is returned.
Tensor computed(const Tensor& tensor) {
  return tensor.to(compute_type(tensor.scalar_type()));
}

Tensor sum_except(const Tensor& tensor, int64_t dim, const Tensor& like) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (d != dim) {
      dims.push_back(d);
    }
  }
  return dims.empty() ? tensor : tensor.sum(dims, true).view(like.sizes());
}

std::tuple<Tensor, Tensor> weight_norm(const Tensor& v,
                                       const Tensor& g,
                                       int64_t dim) {
  const Tensor norm = at::norm_except_dim(computed(v), 2, dim).view(g.sizes());
  const Tensor weight = computed(v).mul(computed(g).div(norm));
  return {weight.to(v.scalar_type()), norm};
}

std::tuple<Tensor, Tensor> weight_norm_backward(const Tensor& grad_w,
                                                const Tensor& saved_v,
                                                const Tensor& saved_g,
                                                const Tensor& saved_norms,
                                                int64_t dim) {
  TORCH_CHECK(saved_v.is_contiguous(), "saved_v must be contiguous");
  TORCH_CHECK(saved_g.is_contiguous(), "saved_g must be contiguous");
  TORCH_CHECK(saved_norms.is_contiguous(), "saved_norms must be contiguous");
  TORCH_CHECK(dim == 0 || dim == saved_v.dim() - 1,
              "fused kernels can only be applied for first or last dim");
  const Tensor grad = computed(grad_w);
  const Tensor v = computed(saved_v);
  const Tensor norm = computed(saved_norms);
  const Tensor along = sum_except(grad.mul(v), dim, saved_g).div_(norm);
  const Tensor grad_v = grad.sub(v.mul(along.div(norm)))
                            .mul_(computed(saved_g).div(norm))
                            .to(saved_v.scalar_type());
  return {grad_v, along.to(saved_g.scalar_type())};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_weight_norm_interface",
         &WithFallback<at::_ops::_weight_norm_interface, &weight_norm>::call);
  m.impl("_weight_norm_interface_backward",
         &WithFallback<at::_ops::_weight_norm_interface_backward,
                       &weight_norm_backward>::call);
}

}  // namespace torch_opencl::ops
