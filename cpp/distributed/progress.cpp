#include "progress.h"

#include <c10/util/thread_name.h>

#include <algorithm>

namespace torch_opencl::distributed {

namespace {

void try_abort(const Progress::WorkPointer& work) {
  try {
    work->abort();
  } catch (const std::exception&) {
    // gloo cannot abort a collective; that ends by itself or by its time-out.
  }
}

}  // namespace

void Progress::submit(WorkPointer work) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!is_closed_, "the process group was shut down");
  if (!launcher_.joinable()) {
    launcher_ = std::thread([this] { launch_in_order(); });
  }
  launches_.push_back(std::move(work));
  launches_changed_.notify_one();
}

void Progress::launch_in_order() {
  c10::setThreadName("pt_opencl_coll");
  std::unique_lock lock(mutex_);
  while (true) {
    launches_changed_.wait(lock,
                           [&] { return is_closed_ || !launches_.empty(); });
    if (launches_.empty()) {
      return;
    }
    WorkPointer work = std::move(launches_.front());
    launches_.pop_front();
    on_their_way_.push_back(work);
    lock.unlock();
    const bool is_launched = work->launch_inner();
    lock.lock();
    if (!is_launched) {
      on_their_way_.remove(work);
      continue;
    }
    completions_.push_back(std::move(work));
    if (completions_.size() > idle_completers_) {
      completers_.emplace_back([this] { complete_any(); });
    }
    completions_changed_.notify_one();
  }
}

void Progress::complete_any() {
  c10::setThreadName("pt_opencl_wait");
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_completers_;
    completions_changed_.wait(
        lock, [&] { return is_launched_ || !completions_.empty(); });
    --idle_completers_;
    if (completions_.empty()) {
      return;
    }
    WorkPointer work = std::move(completions_.front());
    completions_.pop_front();
    lock.unlock();
    work->complete();
    lock.lock();
    on_their_way_.remove(work);
    lock.unlock();
    work.reset();  // may free tensors, and take the interpreter's lock for it
    lock.lock();
  }
}

void Progress::abort() {
  std::vector<WorkPointer> works;
  {
    const std::lock_guard lock(mutex_);
    works.assign(on_their_way_.begin(), on_their_way_.end());
    works.insert(works.end(), launches_.begin(), launches_.end());
  }
  std::for_each(works.begin(), works.end(), try_abort);
}

void Progress::close() {
  std::call_once(closed_, [this] {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
      launches_changed_.notify_all();
    }
    if (launcher_.joinable()) {
      launcher_.join();
    }
    std::vector<WorkPointer> works;
    {
      const std::lock_guard lock(mutex_);
      is_launched_ = true;
      works.assign(on_their_way_.begin(), on_their_way_.end());
      completions_changed_.notify_all();
    }
    for (const WorkPointer& work : works) {
      if (c10d::isP2POp(work->retrieveOpType())) {
        try_abort(work);
      }
    }
    for (std::thread& completer : completers_) {
      completer.join();
    }
  });
}

}  // namespace torch_opencl::distributed
