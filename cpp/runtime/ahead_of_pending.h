// Commands that may overtake what is pending in their queue.
#pragma once

#include "queue.h"

namespace torch_opencl::runtime {

// While it lives, this thread's commands on the queue go ahead of the pending
// launch: neither may touch what the other writes. None of them is pending.
class AheadOfPending {
 public:
  explicit AheadOfPending(const Queue& queue);
  ~AheadOfPending();
  AheadOfPending(const AheadOfPending&) = delete;
  AheadOfPending& operator=(const AheadOfPending&) = delete;

 private:
  const Queue* outer_;
};

}  // namespace torch_opencl::runtime
