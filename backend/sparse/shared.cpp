// The ops on sparse COO tensors whose host code PyTorch shares between its CPU
// and its CUDA backend: they are written in terms of ops on indices and values,
// which run here. Their CPU kernel is that host code and is called as it is.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>

#include <string>

namespace torch_opencl::ops {
namespace {

// Of the first argument that has one.
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

// CUDA's kernels set the device before they call the shared code, CPU's have
// none to set.
template <c10::DispatchKey kKey>
void run_shared(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::OptionalDeviceGuard guard(device_of_arguments(op, *stack));
  op.redispatchBoxed(c10::DispatchKeySet(kKey), stack);
}

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
    "_sparse_mask_projection",
    "_to_dense",
    "_to_sparse",
    "_to_sparse.sparse_dim",
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

constexpr const char* kFromDense[] = {"_to_sparse", "_to_sparse.sparse_dim"};

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  const auto share = [&m](const std::string& name) {
    m.impl(name.c_str(),
           torch::CppFunction::makeFromBoxedFunction<
               &run_shared<c10::DispatchKey::SparseCPU>>());
  };
  for (const char* name : kUnary) {
    share(name);
    share(std::string(name) + "_");
    share(std::string(name) + ".out");
  }
  for (const char* name : kOthers) {
    share(name);
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : kFromDense) {
    m.impl(name,
           torch::CppFunction::makeFromBoxedFunction<
               &run_shared<c10::DispatchKey::CPU>>());
  }
}

}  // namespace torch_opencl::ops
