// What an operation gives its caller: torch.distributed's Work.
#pragma once

#include "staging.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch_opencl::distributed {

class StagedWork final : public c10d::Work {
 public:
  using Launch = std::function<c10::intrusive_ptr<c10d::Work>()>;

  // `launch` hands the host tensors to the inner backend.
  StagedWork(int rank,
             c10d::OpType type,
             const std::string& title,
             std::unique_ptr<Staging> staging,
             Launch launch);

  bool isCompleted() override;  // the results are in the device's memory
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  // Makes the current stream wait for the results; wait() has waited for the
  // operation before.
  void synchronize() override;
  void blockCurrentStream() override { wait(); }
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }

  // By the threads that make progress, in this order. Failures go to whoever
  // waits.
  bool launch_inner() noexcept;  // false where it failed
  void complete() noexcept;
  void fail(std::exception_ptr error) noexcept;

 private:
  const std::unique_ptr<Staging> staging_;
  std::vector<at::Tensor> results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  Launch launch_;
  mutable std::mutex inner_mutex_;
  c10::intrusive_ptr<c10d::Work> inner_;
  bool is_aborted_ = false;
};

// Several at once: what _end_coalescing returns.
class CoalescedWork final : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace torch_opencl::distributed
