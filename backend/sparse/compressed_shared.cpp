// The ops on compressed sparse tensors (CSR, CSC, BSR, BSC) whose host code
// PyTorch shares between its CPU and its CUDA backend: ops on indices and
// values, which run here. An op that has none raises: the fallback does not
// know these layouts.
#include "host_code.h"

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {
namespace {

// As functional, in-place and out overload.
constexpr const char* kUnary[] = {
    "abs",   "asin",  "asinh", "atan",  "atanh", "ceil",    "erf",     "erfinv",
    "expm1", "floor", "frac",  "log1p", "neg",   "rad2deg", "deg2rad", "round",
    "sgn",   "sign",  "sin",   "sinh",  "sqrt",  "tan",     "tanh",    "trunc"};

constexpr const char* kOthers[] = {
    "_conj_physical",
    "_nnz",
    "_to_dense",
    "_to_sparse",
    "_to_sparse.sparse_dim",
    "add.Tensor",
    "add_.Tensor",
    "addmm",
    "angle",
    "angle.out",
    "ccol_indices",
    "clone",
    "col_indices",
    "conj_physical.out",
    "conj_physical_",
    "copy_",
    "crow_indices",
    "dense_dim",
    "empty.memory_format",
    "empty_like",
    "fill_.Scalar",
    "isinf",
    "isnan",
    "isneginf",
    "isneginf.out",
    "isposinf",
    "isposinf.out",
    "mm",
    "mm.out",
    "mul.Scalar",
    "mul.Tensor",
    "mul.out",
    "mul_.Scalar",
    "mul_.Tensor",
    "normal_",
    "relu",
    "relu_",
    "resize_",
    "resize_as_sparse_",
    "row_indices",
    "select.int",
    "select_copy.int",
    "signbit",
    "signbit.out",
    "sparse_dim",
    "sparse_mask",
    "sum",
    "sum.dim_IntList",
    "threshold_backward",
    "threshold_backward.grad_input",
    "values",
    "zero_",
};

bool is_pinned(const at::Tensor&, std::optional<at::Device>) {
  return false;
}

at::Tensor copy_from_and_resize(const at::Tensor& self,
                                const at::Tensor& destination) {
  return at::Tensor(destination).copy_(self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  share_all<c10::DispatchKey::SparseCsrCPU>(m, kUnary, kOthers);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("is_pinned", is_pinned);
}

}  // namespace torch_opencl::ops
