// The threads of a process group. One hands operations to the inner backend,
// in the order of the calls, which has to be the same in every process. Others
// wait for them, one for each that is on its way: an operation may be waited
// for by peers that first want a later one.
#pragma once

#include "work.h"

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace torch_opencl::distributed {

class Progress {
 public:
  using WorkPointer = c10::intrusive_ptr<StagedWork>;

  Progress() = default;
  Progress(const Progress&) = delete;
  ~Progress() { close(); }

  void submit(WorkPointer work);
  // Ends what is on its way with an error, as far as the inner backend can.
  void abort();
  // What was submitted is finished first, but for sends and receives: nobody
  // may be there for them. Later submissions fail.
  void close();

 private:
  void launch_in_order();
  void complete_any();

  std::mutex mutex_;
  std::condition_variable launches_changed_;
  std::condition_variable completions_changed_;
  std::deque<WorkPointer> launches_;
  std::deque<WorkPointer> completions_;
  std::list<WorkPointer> on_their_way_;
  std::thread launcher_;
  std::vector<std::thread> completers_;
  size_t idle_completers_ = 0;
  bool is_closed_ = false;    // no more submissions
  bool is_launched_ = false;  // no more launches
  std::once_flag closed_;
};

}  // namespace torch_opencl::distributed
