// Products and distances that are a few other ops: addbmm, addr, cross, renorm,
// cdist.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/no_autocast.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/kernel_text.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addr_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_cross_meta.h>
#include <ATen/ops/linalg_cross_ops.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/renorm_meta.h>
#include <ATen/ops/renorm_ops.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <array>
#include <cmath>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Scalar;
using at::Tensor;

// As on the CPU, whose addbmm adds product after product to its first argument.
void check_addbmm_dtypes(const Tensor& sum,
                         const Tensor& batch1,
                         const Tensor& batch2) {
  check_dtype_of_mat2("self", sum, batch2);
  check_dtype_of_mat2("mat1", batch1, batch2);
}

Tensor addbmm(const Tensor& self,
              const Tensor& batch1,
              const Tensor& batch2,
              const Scalar& beta,
              const Scalar& alpha) {
  TORCH_CHECK(batch1.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(batch2.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(batch1.size(0) == batch2.size(0),
              "batch1 and batch2 must have same number of batches, got ",
              batch1.size(0),
              " and ",
              batch2.size(0));
  TORCH_CHECK(batch1.size(2) == batch2.size(1),
              "Incompatible matrix sizes for bmm (",
              batch1.size(1),
              "x",
              batch1.size(2),
              " and ",
              batch2.size(1),
              "x",
              batch2.size(2),
              ")");
  check_addbmm_dtypes(self, batch1, batch2);
  // One product, with all batches along its depth.
  const aten::NoAutocast guard;
  return at::addmm(self.expand({batch1.size(1), batch2.size(2)}),
                   batch1.transpose(0, 1).flatten(1),
                   batch2.flatten(0, 1),
                   beta,
                   alpha);
}

Tensor& addbmm_out(const Tensor& self,
                   const Tensor& batch1,
                   const Tensor& batch2,
                   const Scalar& beta,
                   const Scalar& alpha,
                   Tensor& out) {
  const Tensor result = addbmm(self, batch1, batch2, beta, alpha);
  check_addbmm_dtypes(out, batch1, batch2);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

Tensor& addbmm_(Tensor& self,
                const Tensor& batch1,
                const Tensor& batch2,
                const Scalar& beta,
                const Scalar& alpha) {
  const Tensor result = addbmm(self, batch1, batch2, beta, alpha);
  TORCH_CHECK(self.sizes() == result.sizes(),
              "Bad in-place call: input tensor size ",
              self.sizes(),
              " and output tensor size ",
              result.sizes(),
              " should match");
  return self.copy_(result);
}

void check_addr_number(at::ScalarType dtype,
                       const Scalar& number,
                       const char* name) {
  TORCH_CHECK(!number.isBoolean() || dtype == at::kBool,
              "Boolean ",
              name,
              " only supported for Boolean results.");
  TORCH_CHECK(!at::isIntegralType(dtype, /*includeBool=*/true) ||
                  number.isIntegral(/*includeBool=*/true),
              "For integral input tensors, argument ",
              name,
              " must not be a floating point number.");
  if (at::isIntegralType(dtype, /*includeBool=*/false)) {
    checked_scalar(number, dtype);
  }
}

// ATen's for backends without a kernel, which broadcasts what is added, and
// would multiply each tensor in its own dtype.
Tensor addr(const Tensor& self,
            const Tensor& vec1,
            const Tensor& vec2,
            const Scalar& beta,
            const Scalar& alpha) {
  for (const Tensor* vector : {&vec1, &vec2}) {
    TORCH_CHECK(vector->dim() == 1,
                "addr: Expected 1-D argument vec",
                vector == &vec1 ? 1 : 2,
                ", but got ",
                vector->dim(),
                "-D");
  }
  const at::ScalarType dtype = c10::promoteTypes(
      c10::promoteTypes(vec1.scalar_type(), vec2.scalar_type()),
      self.scalar_type());
  check_addr_number(dtype, beta, "beta");
  check_addr_number(dtype, alpha, "alpha");
  const Tensor added = self.expand({vec1.numel(), vec2.numel()}).to(dtype);
  const Tensor result =
      at::native::math_addr(added, vec1.to(dtype), vec2.to(dtype), beta, alpha);
  // What is added decides the strides, even where it counts for nothing.
  return beta.equal(0) && !added.is_contiguous()
             ? at::empty_like(added).copy_(result)
             : result;
}

Tensor& addr_out(const Tensor& self,
                 const Tensor& vec1,
                 const Tensor& vec2,
                 const Scalar& beta,
                 const Scalar& alpha,
                 Tensor& out) {
  const Tensor result = addr(self, vec1, vec2, beta, alpha);
  check_castable(result.scalar_type(), out);
  TORCH_CHECK(!out.is_same(self) || self.sizes() == result.sizes(),
              "size mismatch, input: ",
              self.sizes(),
              ", v1: ",
              vec1.sizes(),
              ", v2: ",
              vec2.sizes());
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

struct linalg_cross_out : at::meta::structured_linalg_cross {
  void impl(const Tensor& self,
            const Tensor& other,
            int64_t dim,
            const Tensor& out) {
    check_implemented(out.scalar_type() != at::kBool, "cross", at::kBool);
    const Tensor a = self.expand(out.sizes());
    const Tensor b = other.expand(out.sizes());
    // All are read before any is written: `out` may have memory of theirs.
    std::array<Tensor, 3> results;
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t j = (i + 1) % 3;
      const int64_t k = (i + 2) % 3;
      results[i] = a.select(dim, j)
                       .mul(b.select(dim, k))
                       .sub_(a.select(dim, k).mul(b.select(dim, j)));
    }
    for (int64_t i = 0; i < 3; ++i) {
      out.select(dim, i).copy_(results[i]);
    }
  }
};

struct renorm_out : at::meta::structured_renorm {
  void impl(const Tensor& self,
            const Scalar& p,
            int64_t dim,
            const Scalar& maxnorm,
            const Tensor& out) {
    std::vector<int64_t> dims;
    dim = at::maybe_wrap_dim(dim, self.dim());
    for (int64_t d = 0; d < self.dim(); ++d) {
      if (d != dim) {
        dims.push_back(d);
      }
    }
    const Tensor norm = at::linalg_vector_norm(
        self, p, dims, true, compute_type(self.scalar_type()));
    const Tensor factor = at::where(
        norm.gt(maxnorm), norm.add(1e-7).reciprocal_().mul_(maxnorm), 1.0);
    out.copy_(self.mul(factor.to(self.scalar_type())));
  }
};

// (..., rows of x1, rows of x2, columns)
Tensor differences(const Tensor& x1, const Tensor& x2) {
  return x1.unsqueeze(-2).sub(x2.unsqueeze(-3));
}

Tensor cdist_forward(const Tensor& x1,
                     const Tensor& x2,
                     double p,
                     std::optional<int64_t>) {
  for (const auto& [name, x] : {std::pair("X1", x1), std::pair("X2", x2)}) {
    TORCH_CHECK(at::isFloatingType(x.scalar_type()),
                "cdist only supports floating-point dtypes, ",
                name,
                " got: ",
                x.scalar_type());
  }
  check_scalar_type(x2, x1.scalar_type());
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  const aten::NoAutocast guard;
  const Tensor all = differences(x1, x2);
  // Of no columns the norm of infinite order has no value.
  return all.size(-1) == 0
             ? all.sum(-1)
             : at::linalg_vector_norm(all, p, at::IntArrayRef{-1});
}

// The derivative of each distance by x1, times its gradient.
Tensor cdist_backward(const Tensor& grad,
                      const Tensor& x1,
                      const Tensor& x2,
                      double p,
                      const Tensor& cdist) {
  if (grad.numel() == 0 || x1.numel() == 0) {
    return at::zeros_like(x1);
  }
  if (p == 0) {
    return at::zeros_like(x1, {}, at::MemoryFormat::Contiguous);
  }
  const aten::NoAutocast guard;
  const Tensor diff = differences(x1, x2);
  const Tensor distance = cdist.unsqueeze(-1);
  const Tensor zero = distance.eq(0);
  Tensor slope;
  if (p == 1) {
    slope = diff.sign();
  } else if (p == 2) {
    slope = diff.div(distance).masked_fill_(zero, 0);
  } else if (std::isinf(p)) {
    slope = diff.sign().mul_(diff.abs().eq(distance));
  } else {
    slope = diff.sign()
                .mul_(diff.abs().pow_(p - 1))
                .div_(distance.pow(p - 1))
                .masked_fill_(p < 1 ? zero.logical_or(diff.eq(0)) : zero, 0);
  }
  return slope.mul_(grad.unsqueeze(-1)).sum(-2).sum_to_size(x1.sizes());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("addr", TORCH_FN(addr));
  m.impl("addr.out", TORCH_FN(addr_out));
  m.impl("addbmm", TORCH_FN(addbmm));
  m.impl("addbmm.out", TORCH_FN(addbmm_out));
  m.impl("addbmm_", TORCH_FN(addbmm_));
  m.impl("_cdist_forward", TORCH_FN(cdist_forward));
  m.impl("_cdist_backward", TORCH_FN(cdist_backward));
  structured<linalg_cross_out, at::_ops::linalg_cross_out>(m);
  structured<renorm_out, at::_ops::renorm_out>(m);
}

}  // namespace torch_opencl::ops
