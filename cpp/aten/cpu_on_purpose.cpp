#include "cpu_on_purpose.h"

#include <algorithm>

namespace torch_opencl::aten {

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

}  // namespace torch_opencl::aten
