// The ops on sparse COO tensors whose host code PyTorch shares between its CPU
// and its CUDA backend: they are written in terms of ops on indices and values,
// which run here. Their CPU kernel is that host code and is called as it is.
#include "host_code.h"

namespace torch_opencl::ops {

std::optional<at::Device> device_of_arguments(const c10::OperatorHandle& op,
                                              const torch::jit::Stack& stack) {
  for (const at::IValue& argument :
       torch::jit::last(stack, op.schema().arguments().size())) {
    if (argument.isDevice()) {
      return argument.toDevice();
    }
    if (argument.isTensor() && argument.toTensor().is_privateuseone()) {
      return argument.toTensor().device();
    }
    if (argument.isTensorList() && !argument.toTensorVector().empty()) {
      return argument.toTensorVector().front().device();
    }
  }
  return std::nullopt;
}

namespace {

// As functional, in-place and out overload.
constexpr const char* kUnary[] = {
    "abs",     "asin",  "asinh", "atan",      "atanh", "ceil", "erf",
    "erfinv",  "expm1", "floor", "frac",      "log1p", "neg",  "rad2deg",
    "deg2rad", "round", "sgn",   "sign",      "sin",   "sinh", "sqrt",
    "tan",     "tanh",  "trunc", "nan_to_num"};

constexpr const char* kOthers[] = {
    "_coalesced_",
    "_dimI",
    "_dimV",
    "_indices",
    "_nnz",
    "_sparse_broadcast_to",
    "_sparse_coo_tensor_with_dims",
    "_sparse_coo_tensor_with_dims_and_tensors",
    "_to_dense",
    "_to_sparse",
    "_to_sparse.sparse_dim",
    "_to_sparse_csc",
    "_to_sparse_csr",
    "_values",
    "add.Tensor",
    "add_.Tensor",
    "any",
    "cat",
    "clone",
    "conj_physical.out",
    "copy_",
    "copy_sparse_to_sparse_",
    "dense_dim",
    "div.Tensor",
    "div.Tensor_mode",
    "div.out",
    "div.out_mode",
    "div_.Tensor",
    "div_.Tensor_mode",
    "empty.memory_format",
    "empty_like",
    "floor_divide",
    "floor_divide.out",
    "floor_divide_.Tensor",
    "indices",
    "is_coalesced",
    "isinf",
    "isnan",
    "isneginf",
    "isneginf.out",
    "isposinf",
    "isposinf.out",
    "mm",
    "mm.out",
    "mul.Tensor",
    "mul_.Tensor",
    "mv",
    "narrow_copy",
    "native_norm",
    "native_norm.ScalarOpt_dim_dtype",
    "norm.ScalarOpt_dim",
    "norm.ScalarOpt_dim_dtype",
    "permute",
    "pow.Tensor_Scalar",
    "pow.Tensor_Scalar_out",
    "relu",
    "relu_",
    "resize_as_sparse_",
    "signbit",
    "signbit.out",
    "sparse_dim",
    "sparse_resize_",
    "sparse_resize_and_clear_",
    "sub.Tensor",
    "sub.out",
    "sub_.Tensor",
    "sum",
    "sum.dim_IntList",
    "threshold_backward",
    "threshold_backward.grad_input",
    "unsqueeze",
    "values",
    "view_as_complex",
    "view_as_real",
    "zero_",
    "zeros.out",
};

constexpr const char* kFromDense[] = {"_to_sparse",
                                      "_to_sparse.sparse_dim",
                                      "_to_sparse_bsc",
                                      "_to_sparse_bsr",
                                      "_to_sparse_csc",
                                      "_to_sparse_csr"};

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  share_all<c10::DispatchKey::SparseCPU>(m, kUnary, kOthers);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : kFromDense) {
    share<c10::DispatchKey::CPU>(m, name);
  }
}

}  // namespace torch_opencl::ops
