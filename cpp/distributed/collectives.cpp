// The operations: which tensors the inner backend reads and which it writes.
#include "backend.h"

namespace torch_opencl::distributed {

using c10d::Backend;
using c10d::OpType;

template <class Method, class... Arguments>
WorkPointer StagedBackend::forward(OpType type,
                                   const char* operation,
                                   std::unique_ptr<Staging> staging,
                                   Method method,
                                   Arguments... arguments) {
  return submit(type,
                operation,
                std::move(staging),
                [inner = inner_, method, ... arguments = arguments]() mutable {
                  return (inner.get()->*method)(arguments...);
                });
}

template <class Method, class Outputs, class Inputs, class Opts>
WorkPointer StagedBackend::move(OpType type,
                                const char* operation,
                                Method method,
                                const Outputs& outputs,
                                const Inputs& inputs,
                                const Opts& opts) {
  auto staging = stage(operation);
  const Inputs from = staging->read(inputs);
  const Outputs to = staging->written(outputs);
  return forward(type, operation, std::move(staging), method, to, from, opts);
}

template <class Method, class Opts>
WorkPointer StagedBackend::update(OpType type,
                                  const char* operation,
                                  Method method,
                                  const Tensors& tensors,
                                  const Opts& opts) {
  auto staging = stage(operation);
  const Tensors host = staging->updated(tensors);
  return forward(type, operation, std::move(staging), method, host, opts);
}

WorkPointer StagedBackend::broadcast(Tensors& tensors,
                                     const c10d::BroadcastOptions& opts) {
  auto staging = stage("broadcast");
  const bool is_root = opts.rootRank == rank_;
  // Of several tensors, the others at the root are written.
  const Tensors host = !is_root             ? staging->written(tensors)
                       : tensors.size() > 1 ? staging->updated(tensors)
                                            : staging->read(tensors);
  return forward(OpType::BROADCAST,
                 "broadcast",
                 std::move(staging),
                 &Backend::broadcast,
                 host,
                 opts);
}

WorkPointer StagedBackend::allreduce(Tensors& tensors,
                                     const c10d::AllreduceOptions& opts) {
  return update(
      OpType::ALLREDUCE, "all_reduce", &Backend::allreduce, tensors, opts);
}

WorkPointer StagedBackend::allreduce_sparse(
    Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return update(OpType::_ALLREDUCE_SPARSE,
                "all_reduce_sparse",
                &Backend::allreduce_sparse,
                tensors,
                opts);
}

WorkPointer StagedBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return update(OpType::ALLREDUCE_COALESCED,
                "allreduce_coalesced",
                &Backend::allreduce_coalesced,
                tensors,
                opts);
}

WorkPointer StagedBackend::reduce(Tensors& tensors,
                                  const c10d::ReduceOptions& opts) {
  auto staging = stage("reduce");
  const Tensors host = opts.rootRank == rank_ ? staging->updated(tensors)
                                              : staging->read(tensors);
  return forward(OpType::REDUCE,
                 "reduce",
                 std::move(staging),
                 &Backend::reduce,
                 host,
                 opts);
}

WorkPointer StagedBackend::allgather(TensorLists& outputs,
                                     Tensors& inputs,
                                     const c10d::AllgatherOptions& opts) {
  return move(OpType::ALLGATHER,
              "all_gather",
              &Backend::allgather,
              outputs,
              inputs,
              opts);
}

WorkPointer StagedBackend::_allgather_base(at::Tensor& output,
                                           at::Tensor& input,
                                           const c10d::AllgatherOptions& opts) {
  return move(OpType::_ALLGATHER_BASE,
              "all_gather_into_tensor",
              &Backend::_allgather_base,
              output,
              input,
              opts);
}

WorkPointer StagedBackend::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  return move(OpType::ALLGATHER_COALESCED,
              "all_gather_coalesced",
              &Backend::allgather_coalesced,
              outputs,
              inputs,
              opts);
}

WorkPointer StagedBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  return move(OpType::ALLGATHER_COALESCED,
              "all_gather_into_tensor_coalesced",
              &Backend::allgather_into_tensor_coalesced,
              outputs,
              inputs,
              opts);
}

WorkPointer StagedBackend::gather(TensorLists& outputs,
                                  Tensors& inputs,
                                  const c10d::GatherOptions& opts) {
  return move(
      OpType::GATHER, "gather", &Backend::gather, outputs, inputs, opts);
}

WorkPointer StagedBackend::scatter(Tensors& outputs,
                                   TensorLists& inputs,
                                   const c10d::ScatterOptions& opts) {
  return move(
      OpType::SCATTER, "scatter", &Backend::scatter, outputs, inputs, opts);
}

WorkPointer StagedBackend::reduce_scatter(
    Tensors& outputs,
    TensorLists& inputs,
    const c10d::ReduceScatterOptions& opts) {
  return move(OpType::REDUCE_SCATTER,
              "reduce_scatter",
              &Backend::reduce_scatter,
              outputs,
              inputs,
              opts);
}

WorkPointer StagedBackend::_reduce_scatter_base(
    at::Tensor& output,
    at::Tensor& input,
    const c10d::ReduceScatterOptions& opts) {
  return move(OpType::_REDUCE_SCATTER_BASE,
              "reduce_scatter_tensor",
              &Backend::_reduce_scatter_base,
              output,
              input,
              opts);
}

WorkPointer StagedBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  return move(OpType::REDUCE_SCATTER_TENSOR_COALESCED,
              "reduce_scatter_tensor_coalesced",
              &Backend::reduce_scatter_tensor_coalesced,
              outputs,
              inputs,
              opts);
}

WorkPointer StagedBackend::alltoall_base(at::Tensor& output,
                                         at::Tensor& input,
                                         std::vector<int64_t>& output_sizes,
                                         std::vector<int64_t>& input_sizes,
                                         const c10d::AllToAllOptions& opts) {
  auto staging = stage("all_to_all_single");
  const at::Tensor from = staging->read(input);
  const at::Tensor to = staging->written(output);
  return forward(OpType::ALLTOALL_BASE,
                 "all_to_all_single",
                 std::move(staging),
                 &Backend::alltoall_base,
                 to,
                 from,
                 output_sizes,
                 input_sizes,
                 opts);
}

WorkPointer StagedBackend::alltoall(Tensors& outputs,
                                    Tensors& inputs,
                                    const c10d::AllToAllOptions& opts) {
  return move(OpType::ALLTOALL,
              "all_to_all",
              &Backend::alltoall,
              outputs,
              inputs,
              opts);
}

WorkPointer StagedBackend::send(Tensors& tensors, int destination, int tag) {
  auto staging = stage("send");
  const Tensors host = staging->read(tensors);
  return forward(OpType::SEND,
                 "send",
                 std::move(staging),
                 &Backend::send,
                 host,
                 destination,
                 tag);
}

WorkPointer StagedBackend::recv(Tensors& tensors, int source, int tag) {
  auto staging = stage("recv");
  const Tensors host = staging->written(tensors);
  return forward(OpType::RECV,
                 "recv",
                 std::move(staging),
                 &Backend::recv,
                 host,
                 source,
                 tag);
}

WorkPointer StagedBackend::recvAnysource(Tensors& tensors, int tag) {
  auto staging = stage("recv_any_source");
  const Tensors host = staging->written(tensors);
  return forward(OpType::RECVANYSOURCE,
                 "recv_any_source",
                 std::move(staging),
                 &Backend::recvAnysource,
                 host,
                 tag);
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
  return forward(OpType::BARRIER,
                 "barrier",
                 std::move(staging),
                 &Backend::barrier,
                 inner_opts);
}

}  // namespace torch_opencl::distributed
