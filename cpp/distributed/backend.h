// A process group's backend for tensors of the device: another backend, gloo's
// as a rule, communicates between copies in pinned host memory.
#pragma once

#include "progress.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace torch_opencl::distributed {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;

// Every operation returns at once: its copies to the host are enqueued behind
// the current stream, and threads do the rest. Tensors on the CPU are taken,
// too, in the same order.
class StagedBackend final : public c10d::Backend {
 public:
  StagedBackend(BackendPointer inner, std::string name);
  ~StagedBackend() override;

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return inner_->getBackendOptions();
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    inner_->setTimeout(timeout);
  }
  // Of calls: the inner backend's count depends on how far the threads are.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void monitoredBarrier(const c10d::BarrierOptions& opts,
                        bool wait_all_ranks) override {
    inner_->monitoredBarrier(opts, wait_all_ranks);
  }
  void abort() override;
  void shutdown() override;
  void startCoalescing() override;
  WorkPointer endCoalescing() override;

  WorkPointer broadcast(Tensors& tensors,
                        const c10d::BroadcastOptions& opts) override;
  WorkPointer allreduce(Tensors& tensors,
                        const c10d::AllreduceOptions& opts) override;
  WorkPointer allreduce_sparse(Tensors& tensors,
                               const c10d::AllreduceOptions& opts) override;
  WorkPointer allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPointer reduce(Tensors& tensors,
                     const c10d::ReduceOptions& opts) override;
  WorkPointer allgather(TensorLists& outputs,
                        Tensors& inputs,
                        const c10d::AllgatherOptions& opts) override;
  WorkPointer _allgather_base(at::Tensor& output,
                              at::Tensor& input,
                              const c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_coalesced(TensorLists& outputs,
                                  Tensors& inputs,
                                  const c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_into_tensor_coalesced(
      Tensors& outputs,
      Tensors& inputs,
      const c10d::AllgatherOptions& opts) override;
  WorkPointer gather(TensorLists& outputs,
                     Tensors& inputs,
                     const c10d::GatherOptions& opts) override;
  WorkPointer scatter(Tensors& outputs,
                      TensorLists& inputs,
                      const c10d::ScatterOptions& opts) override;
  WorkPointer reduce_scatter(Tensors& outputs,
                             TensorLists& inputs,
                             const c10d::ReduceScatterOptions& opts) override;
  WorkPointer _reduce_scatter_base(
      at::Tensor& output,
      at::Tensor& input,
      const c10d::ReduceScatterOptions& opts) override;
  WorkPointer reduce_scatter_tensor_coalesced(
      Tensors& outputs,
      Tensors& inputs,
      const c10d::ReduceScatterOptions& opts) override;
  WorkPointer alltoall_base(at::Tensor& output,
                            at::Tensor& input,
                            std::vector<int64_t>& output_sizes,
                            std::vector<int64_t>& input_sizes,
                            const c10d::AllToAllOptions& opts) override;
  WorkPointer alltoall(Tensors& outputs,
                       Tensors& inputs,
                       const c10d::AllToAllOptions& opts) override;
  WorkPointer send(Tensors& tensors, int destination, int tag) override;
  WorkPointer recv(Tensors& tensors, int source, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& opts) override;

 private:
  std::unique_ptr<Staging> stage(const char* operation);
  WorkPointer submit(c10d::OpType type,
                     const char* operation,
                     std::unique_ptr<Staging> staging,
                     StagedWork::Launch launch);

  // Submits a call of the inner backend's `method`. Tensors among the arguments
  // are those of `staging`.
  template <class Method, class... Arguments>
  WorkPointer forward(c10d::OpType type,
                      const char* operation,
                      std::unique_ptr<Staging> staging,
                      Method method,
                      Arguments... arguments);
  // Of one that reads some tensors and writes others.
  template <class Method, class Outputs, class Inputs, class Opts>
  WorkPointer move(c10d::OpType type,
                   const char* operation,
                   Method method,
                   const Outputs& outputs,
                   const Inputs& inputs,
                   const Opts& opts);
  // Of one that reads and writes the same tensors.
  template <class Method, class Opts>
  WorkPointer update(c10d::OpType type,
                     const char* operation,
                     Method method,
                     const Tensors& tensors,
                     const Opts& opts);

  const BackendPointer inner_;
  const std::string name_;
  CopyStreams streams_;
  Progress progress_;
  std::atomic<uint64_t> sequence_{0};
  std::mutex coalescing_mutex_;
  std::optional<std::vector<WorkPointer>> coalesced_;
};

}  // namespace torch_opencl::distributed
