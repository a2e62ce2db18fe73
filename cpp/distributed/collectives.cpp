// The operations: which tensors the inner backend reads and which it writes.
#include "backend.h"

namespace torch_opencl::distributed {

using c10d::OpType;

namespace {

bool is_root(int64_t root, int rank) {
  return root == rank;
}

}  // namespace

WorkPointer StagedBackend::broadcast(Tensors& tensors,
                                     const c10d::BroadcastOptions& opts) {
  auto staging = stage("broadcast");
  // Of several tensors, the others at the root are written.
  const bool only_reads = is_root(opts.rootRank, rank_) && tensors.size() == 1;
  Tensors host = only_reads                      ? staging->read(tensors)
                 : is_root(opts.rootRank, rank_) ? staging->updated(tensors)
                                                 : staging->written(tensors);
  return submit(OpType::BROADCAST,
                "broadcast",
                std::move(staging),
                [inner = inner_, host, opts]() mutable {
                  return inner->broadcast(host, opts);
                });
}

WorkPointer StagedBackend::allreduce(Tensors& tensors,
                                     const c10d::AllreduceOptions& opts) {
  auto staging = stage("all_reduce");
  Tensors host = staging->updated(tensors);
  return submit(OpType::ALLREDUCE,
                "all_reduce",
                std::move(staging),
                [inner = inner_, host, opts]() mutable {
                  return inner->allreduce(host, opts);
                });
}

WorkPointer StagedBackend::allreduce_sparse(
    Tensors& tensors, const c10d::AllreduceOptions& opts) {
  auto staging = stage("all_reduce_sparse");
  Tensors host = staging->updated(tensors);
  return submit(OpType::_ALLREDUCE_SPARSE,
                "all_reduce_sparse",
                std::move(staging),
                [inner = inner_, host, opts]() mutable {
                  return inner->allreduce_sparse(host, opts);
                });
}

WorkPointer StagedBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  auto staging = stage("allreduce_coalesced");
  Tensors host = staging->updated(tensors);
  return submit(OpType::ALLREDUCE_COALESCED,
                "allreduce_coalesced",
                std::move(staging),
                [inner = inner_, host, opts]() mutable {
                  return inner->allreduce_coalesced(host, opts);
                });
}

WorkPointer StagedBackend::reduce(Tensors& tensors,
                                  const c10d::ReduceOptions& opts) {
  auto staging = stage("reduce");
  Tensors host = is_root(opts.rootRank, rank_) ? staging->updated(tensors)
                                               : staging->read(tensors);
  return submit(OpType::REDUCE,
                "reduce",
                std::move(staging),
                [inner = inner_, host, opts]() mutable {
                  return inner->reduce(host, opts);
                });
}

WorkPointer StagedBackend::allgather(TensorLists& outputs,
                                     Tensors& inputs,
                                     const c10d::AllgatherOptions& opts) {
  auto staging = stage("all_gather");
  Tensors from = staging->read(inputs);
  TensorLists to = staging->written(outputs);
  return submit(OpType::ALLGATHER,
                "all_gather",
                std::move(staging),
                [inner = inner_, to, from, opts]() mutable {
                  return inner->allgather(to, from, opts);
                });
}

WorkPointer StagedBackend::_allgather_base(at::Tensor& output,
                                           at::Tensor& input,
                                           const c10d::AllgatherOptions& opts) {
  auto staging = stage("all_gather_into_tensor");
  at::Tensor from = staging->read(input);
  at::Tensor to = staging->written(output);
  return submit(OpType::_ALLGATHER_BASE,
                "all_gather_into_tensor",
                std::move(staging),
                [inner = inner_, to, from, opts]() mutable {
                  return inner->_allgather_base(to, from, opts);
                });
}

WorkPointer StagedBackend::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  auto staging = stage("all_gather_coalesced");
  Tensors from = staging->read(inputs);
  TensorLists to = staging->written(outputs);
  return submit(OpType::ALLGATHER_COALESCED,
                "all_gather_coalesced",
                std::move(staging),
                [inner = inner_, to, from, opts]() mutable {
                  return inner->allgather_coalesced(to, from, opts);
                });
}

WorkPointer StagedBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  auto staging = stage("all_gather_into_tensor_coalesced");
  Tensors from = staging->read(inputs);
  Tensors to = staging->written(outputs);
  return submit(OpType::ALLGATHER_COALESCED,
                "all_gather_into_tensor_coalesced",
                std::move(staging),
                [inner = inner_, to, from, opts]() mutable {
                  return inner->allgather_into_tensor_coalesced(to, from, opts);
                });
}

WorkPointer StagedBackend::gather(TensorLists& outputs,
                                  Tensors& inputs,
                                  const c10d::GatherOptions& opts) {
  auto staging = stage("gather");
  Tensors from = staging->read(inputs);
  TensorLists to = staging->written(outputs);
  return submit(OpType::GATHER,
                "gather",
                std::move(staging),
                [inner = inner_, to, from, opts]() mutable {
                  return inner->gather(to, from, opts);
                });
}

WorkPointer StagedBackend::scatter(Tensors& outputs,
                                   TensorLists& inputs,
                                   const c10d::ScatterOptions& opts) {
  auto staging = stage("scatter");
  TensorLists from = staging->read(inputs);
  Tensors to = staging->written(outputs);
  return submit(OpType::SCATTER,
                "scatter",
                std::move(staging),
                [inner = inner_, to, from, opts]() mutable {
                  return inner->scatter(to, from, opts);
                });
}

WorkPointer StagedBackend::reduce_scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ReduceScatterOptions& opts) {
  auto staging = stage("reduce_scatter");
  TensorLists from = staging->read(inputs);
  Tensors to = staging->written(outputs);
  return submit(OpType::REDUCE_SCATTER,
                "reduce_scatter",
                std::move(staging),
                [inner = inner_, to, from, opts]() mutable {
                  return inner->reduce_scatter(to, from, opts);
                });
}

WorkPointer StagedBackend::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& opts) {
  auto staging = stage("reduce_scatter_tensor");
  at::Tensor from = staging->read(input);
  at::Tensor to = staging->written(output);
  return submit(OpType::_REDUCE_SCATTER_BASE,
                "reduce_scatter_tensor",
                std::move(staging),
                [inner = inner_, to, from, opts]() mutable {
                  return inner->_reduce_scatter_base(to, from, opts);
                });
}

WorkPointer StagedBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  auto staging = stage("reduce_scatter_tensor_coalesced");
  Tensors from = staging->read(inputs);
  Tensors to = staging->written(outputs);
  return submit(OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                "reduce_scatter_tensor_coalesced",
                std::move(staging),
                [inner = inner_, to, from, opts]() mutable {
                  return inner->reduce_scatter_tensor_coalesced(to, from, opts);
                });
}

WorkPointer StagedBackend::alltoall_base(at::Tensor& output,
                                         at::Tensor& input,
                                         std::vector<int64_t>& output_sizes,
                                         std::vector<int64_t>& input_sizes,
                                         const c10d::AllToAllOptions& opts) {
  auto staging = stage("all_to_all_single");
  at::Tensor from = staging->read(input);
  at::Tensor to = staging->written(output);
  return submit(
      OpType::ALLTOALL_BASE,
      "all_to_all_single",
      std::move(staging),
      [inner = inner_, to, from, output_sizes, input_sizes, opts]() mutable {
        return inner->alltoall_base(to, from, output_sizes, input_sizes, opts);
      });
}

WorkPointer StagedBackend::alltoall(Tensors& outputs,
                                    Tensors& inputs,
                                    const c10d::AllToAllOptions& opts) {
  auto staging = stage("all_to_all");
  Tensors from = staging->read(inputs);
  Tensors to = staging->written(outputs);
  return submit(OpType::ALLTOALL,
                "all_to_all",
                std::move(staging),
                [inner = inner_, to, from, opts]() mutable {
                  return inner->alltoall(to, from, opts);
                });
}

WorkPointer StagedBackend::send(Tensors& tensors, int destination, int tag) {
  auto staging = stage("send");
  Tensors host = staging->read(tensors);
  return submit(OpType::SEND,
                "send",
                std::move(staging),
                [inner = inner_, host, destination, tag]() mutable {
                  return inner->send(host, destination, tag);
                });
}

WorkPointer StagedBackend::recv(Tensors& tensors, int source, int tag) {
  auto staging = stage("recv");
  Tensors host = staging->written(tensors);
  return submit(OpType::RECV,
                "recv",
                std::move(staging),
                [inner = inner_, host, source, tag]() mutable {
                  return inner->recv(host, source, tag);
                });
}

WorkPointer StagedBackend::recvAnysource(Tensors& tensors, int tag) {
  auto staging = stage("recv_any_source");
  Tensors host = staging->written(tensors);
  return submit(OpType::RECVANYSOURCE,
                "recv_any_source",
                std::move(staging),
                [inner = inner_, host, tag]() mutable {
                  return inner->recvAnysource(host, tag);
                });
}

WorkPointer StagedBackend::barrier(const c10d::BarrierOptions& opts) {
  auto staging = stage("barrier");
  if (opts.device.has_value() && opts.device->is_privateuseone()) {
    staging->follow(*opts.device);
  }
  // The inner backend has no such device.
  c10d::BarrierOptions inner_opts = opts;
  inner_opts.device_ids.clear();
  inner_opts.device.reset();
  return submit(OpType::BARRIER,
                "barrier",
                std::move(staging),
                [inner = inner_, inner_opts]() mutable {
                  return inner->barrier(inner_opts);
                });
}

}  // namespace torch_opencl::distributed
