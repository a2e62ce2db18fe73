#include "work.h"

#include <c10/core/StreamGuard.h>

namespace torch_opencl::distributed {

namespace {

std::vector<c10::Device> devices_of(const Staging& staging) {
  const auto device = staging.device();
  return device.has_value() ? std::vector<c10::Device>{*device}
                            : std::vector<c10::Device>{};
}

c10::intrusive_ptr<c10::ivalue::Future> make_future(
    std::vector<c10::Device> devices) {
  return c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

}  // namespace

StagedWork::StagedWork(int rank,
                       c10d::OpType type,
                       const std::string& title,
                       std::unique_ptr<Staging> staging,
                       Launch launch)
    : Work(rank, type, title.c_str(), staging->inputs()),
      staging_(std::move(staging)),
      results_(staging_->outputs()),
      future_(make_future(devices_of(*staging_))),
      launch_(std::move(launch)) {}

bool StagedWork::isCompleted() {
  const std::lock_guard lock(mutex_);
  return completed_ && (exception_ != nullptr || staging_->is_done());
}

int StagedWork::sourceRank() const {
  const std::lock_guard lock(inner_mutex_);
  return inner_ ? inner_->sourceRank() : Work::sourceRank();
}

std::vector<at::Tensor> StagedWork::result() {
  return results_;
}

void StagedWork::synchronize() {
  staging_->block_current_stream();
}

void StagedWork::abort() {
  const std::lock_guard lock(inner_mutex_);
  is_aborted_ = true;
  if (inner_) {
    inner_->abort();
  }
}

bool StagedWork::launch_inner() noexcept {
  try {
    staging_->wait_for_copies();
    const std::lock_guard lock(inner_mutex_);
    TORCH_CHECK(!is_aborted_, "operation aborted before it started");
    inner_ = launch_();
    return true;
  } catch (...) {
    fail(std::current_exception());
    return false;
  }
}

void StagedWork::complete() noexcept {
  try {
    if (inner_ && !inner_->wait()) {
      TORCH_CHECK(false, "operation aborted");
    }
    staging_->copy_back();
    staging_->release();
    launch_ = nullptr;  // holds the host tensors
    c10::OptionalStreamGuard guard;
    if (const auto stream = staging_->stream_of_results()) {
      guard.reset_stream(*stream);
    }
    // Marked first: a wait for the work may be the last thing a process does.
    future_->markCompleted(c10::IValue(results_));
  } catch (...) {
    fail(std::current_exception());
    return;
  }
  finish();
}

void StagedWork::fail(std::exception_ptr error) noexcept {
  staging_->release();
  launch_ = nullptr;
  future_->setErrorIfNeeded(error);
  finish(error);
}

CoalescedWork::CoalescedWork(int rank,
                             std::vector<c10::intrusive_ptr<c10d::Work>> works)
    : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

bool CoalescedWork::isCompleted() {
  for (const auto& work : works_) {
    if (!work->isCompleted()) {
      return false;
    }
  }
  return true;
}

bool CoalescedWork::isSuccess() const {
  for (const auto& work : works_) {
    if (!work->isSuccess()) {
      return false;
    }
  }
  return true;
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& work : works_) {
    if (auto error = work->exception()) {
      return error;
    }
  }
  return nullptr;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> results;
  for (const auto& work : works_) {
    for (auto& tensor : work->result()) {
      results.push_back(std::move(tensor));
    }
  }
  return results;
}

void CoalescedWork::synchronize() {
  for (const auto& work : works_) {
    work->synchronize();
  }
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  bool is_done = true;
  for (const auto& work : works_) {
    is_done = work->wait(timeout) && is_done;
  }
  return is_done;
}

void CoalescedWork::abort() {
  for (const auto& work : works_) {
    work->abort();
  }
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& work : works_) {
    futures.push_back(work->getFuture());
  }
  return c10::collectAll(futures);
}

}  // namespace torch_opencl::distributed
