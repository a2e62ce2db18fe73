// all_reduce of COO tensors: torch has this kernel for the CPU and CUDA.
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace torch_opencl::distributed {

namespace {

using Pointer = c10::intrusive_ptr<c10d::ProcessGroup>;

std::tuple<std::vector<at::Tensor>, c10::intrusive_ptr<c10d::Work>> allreduce_(
    at::TensorList tensors,
    const Pointer& process_group,
    const c10::intrusive_ptr<c10d::ReduceOp>& reduce_op,
    const std::optional<at::Tensor>& sparse_indices,
    bool async_op,
    int64_t timeout) {
  std::vector<at::Tensor> list = tensors.vec();
  auto work =
      process_group->getBackend(c10::DeviceType::PrivateUse1)
          ->allreduce(list,
                      c10d::AllreduceOptions{*reduce_op,
                                             std::chrono::milliseconds(timeout),
                                             async_op,
                                             sparse_indices});
  return {std::move(list), work};
}

TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, m) {
  m.impl("allreduce_", &allreduce_);
}

}  // namespace

}  // namespace torch_opencl::distributed
