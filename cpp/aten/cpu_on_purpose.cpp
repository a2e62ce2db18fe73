#include "cpu_on_purpose.h"

#include "same_device.h"

#include <ATen/ops/linalg_solve_triangular.h>
#include <torch/library.h>

#include <algorithm>

namespace torch_opencl::aten {
namespace {

// The order of the result goes by whether the matrix is to be conjugated, which
// the fallback's copy of it no longer says.
at::Tensor linalg_solve_triangular(const at::Tensor& self,
                                   const at::Tensor& B,
                                   bool upper,
                                   bool left,
                                   bool unitriangular) {
  check_is_opencl(self.device());
  check_is_opencl(B.device());
  const auto to_cpu = [](const at::Tensor& tensor) {
    return tensor.is_conj() ? tensor.conj().cpu().conj() : tensor.cpu();
  };
  return at::linalg_solve_triangular(
             to_cpu(self), to_cpu(B), upper, left, unitriangular)
      .to(B.device());
}

}  // namespace

const std::vector<std::string>& cpu_on_purpose() {
  // Sorted.
  static const auto* families = new std::vector<std::string>{
      "aten::_cholesky_solve_helper",
      "aten::_compute_linear_combination",
      "aten::_histogramdd_bin_edges",
      "aten::_histogramdd_from_bin_cts",
      "aten::_histogramdd_from_bin_tensors",
      "aten::_linalg_det",
      "aten::_linalg_eigh",
      "aten::_linalg_eigvals",
      "aten::_linalg_slogdet",
      "aten::_linalg_solve_ex",
      "aten::_linalg_svd",
      "aten::_spdiags",
      "aten::cholesky",
      "aten::cholesky_inverse",
      "aten::geqrf",
      "aten::hash_tensor",
      "aten::linalg_cholesky_ex",
      "aten::linalg_eig",
      "aten::linalg_eigvals",
      "aten::linalg_householder_product",
      "aten::linalg_inv_ex",
      "aten::linalg_ldl_factor_ex",
      "aten::linalg_ldl_solve",
      "aten::linalg_lstsq",
      "aten::linalg_lu",
      "aten::linalg_lu_factor_ex",
      "aten::linalg_lu_solve",
      "aten::linalg_matrix_exp",
      "aten::linalg_qr",
      "aten::linalg_solve_triangular",
      "aten::lu_unpack",
      "aten::ormqr",
      "aten::triangular_solve",
  };
  return *families;
}

bool is_cpu_on_purpose(const std::string& family) {
  const std::vector<std::string>& families = cpu_on_purpose();
  return std::binary_search(families.begin(), families.end(), family);
}

void keep_order_of_matrix(const c10::FunctionSchema& op,
                          torch::jit::Stack* stack) {
  const std::string& family = op.name();
  if (family != "aten::_linalg_det" && family != "aten::_linalg_slogdet" &&
      family != "aten::_linalg_solve_ex") {
    return;
  }
  c10::IValue& first = torch::jit::peek(*stack, 0, op.arguments().size());
  const at::Tensor matrix = first.toTensor();
  if (matrix.is_privateuseone() && matrix.dim() >= 2 &&
      !matrix.is_contiguous()) {
    first = matrix.mT().contiguous().mT();  // copy: without gaps
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("linalg_solve_triangular", TORCH_FN(linalg_solve_triangular));
}

}  // namespace torch_opencl::aten
