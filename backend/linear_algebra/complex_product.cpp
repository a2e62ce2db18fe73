#include "complex_product.h"

#include "../../cpp/aten/no_autocast.h"

#include <ATen/ops/add.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/real.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

namespace torch_opencl::ops {
namespace {

using at::Scalar;
using at::Tensor;

// The parts of a row of `left` are 2k reals. Against them stand rows of `right`
// in pairs: the row, and the row times i. Their parts are those of the result.
Tensor rows_and_rows_times_i(const Tensor& right) {
  const int64_t batch = right.size(0);
  const int64_t rows = right.size(1);
  const int64_t columns = right.size(2);
  const Tensor pairs = at::empty({batch, rows, 2, columns}, right.options());
  pairs.select(2, 0).copy_(right);
  const Tensor parts = at::view_as_real(pairs.select(2, 1));
  Tensor real = parts.select(-1, 0);
  at::neg_out(real, at::imag(right));
  parts.select(-1, 1).copy_(at::real(right));
  return at::view_as_real(pairs).view({batch, 2 * rows, 2 * columns});
}

Tensor times(const Tensor& tensor, const Scalar& number) {
  return number.equal(1) ? tensor : tensor.mul(number);
}

}  // namespace

void complex_product(const Tensor& left,
                     const Tensor& right,
                     const Tensor& self,
                     const Scalar& beta,
                     const Scalar& alpha,
                     const Tensor& out) {
  const aten::NoAutocast guard;
  const int64_t batch = out.size(0);
  const int64_t rows = out.size(1);
  const int64_t columns = out.size(2);
  const int64_t depth = left.size(2);
  const Tensor parts =
      at::view_as_real(left.resolve_conj().contiguous())  // copy: rows of parts
          .view({batch, rows, 2 * depth});
  const Tensor pairs = rows_and_rows_times_i(right);
  if (beta.equal(0) && alpha.equal(1) && out.is_contiguous() &&
      !out.is_conj()) {
    Tensor result = at::view_as_real(out).view({batch, rows, 2 * columns});
    at::bmm_out(result, parts, pairs);
    return;
  }
  const Tensor product = at::view_as_complex(
      at::bmm(parts, pairs).view({batch, rows, columns, 2}));
  out.copy_(beta.equal(0) ? times(product, alpha)
                          : at::add(times(product, alpha), times(self, beta)));
}

}  // namespace torch_opencl::ops
