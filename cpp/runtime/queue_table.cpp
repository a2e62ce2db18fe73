// The queues of every device.
#include "error.h"
#include "queue.h"
#include "queue_order.h"

#include <atomic>
#include <mutex>
#include <string>

namespace torch_opencl::runtime {

namespace {

// Lock-free once a queue exists; never destroyed, because a driver may be gone
// before static destructors run.
struct Queues {
  std::mutex mutex;
  bool profiles = false;  // those created from now on
  std::array<std::array<std::atomic<Queue*>, kStreamsPerPool + 1>, kMaxDevices>
      table{};
};

Queues& queues() {
  static auto* instance = new Queues();
  return *instance;
}

}  // namespace

Queue& queue(int device_index, int64_t stream_id) {
  if (device_index < 0 || device_index >= kMaxDevices || stream_id < 0 ||
      stream_id > kStreamsPerPool) {
    throw Error("invalid opencl stream " + std::to_string(stream_id) +
                " of device " + std::to_string(device_index));
  }
  std::atomic<Queue*>& slot = queues().table[device_index][stream_id];
  if (Queue* ready = slot.load(std::memory_order_acquire)) [[likely]] {
    return *ready;
  }
  const std::lock_guard lock(queues().mutex);
  if (slot.load() == nullptr) {
    slot.store(new Queue(device(device_index), stream_id, queues().profiles),
               std::memory_order_release);
  }
  return *slot.load();
}

namespace {

template <class Slots, class Do>
void for_each_created(Slots& slots, const Do& call) {
  for (std::atomic<Queue*>& slot : slots) {
    if (Queue* created = slot.load(std::memory_order_acquire)) {
      call(*created);
    }
  }
}

template <class Do>
void for_each_queue(int device_index, const Do& call) {
  device(device_index);
  for_each_created(queues().table[device_index], call);
}

}  // namespace

void synchronize_device(int device_index) {
  // All are waited for; what a second one reports is for the next wait.
  std::exception_ptr failure;
  for_each_queue(device_index, [&failure](Queue& queue) {
    if (failure != nullptr) {
      queue.flush_pending();
      queue.synchronize_enqueued();
      return;
    }
    try {
      queue.synchronize();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
}

void synchronize_enqueued(int device_index) {
  for_each_queue(device_index,
                 [](Queue& queue) { queue.synchronize_enqueued(); });
}

bool flush_pending(int device_index) {
  bool had_any = false;
  for_each_queue(device_index, [&had_any](Queue& queue) {
    had_any |= queue.flush_pending();
  });
  return had_any;
}

void wait_for(Queue& queue, Queue& other) {
  other.flush_pending();
  queue.wait(other.record_enqueued());
}

void wait_for_others(Queue& queue) {
  for_each_queue(queue.device().index(), [&queue](Queue& other) {
    if (&other != &queue) {
      wait_for(queue, other);
    }
  });
}

void let_others_wait(Queue& queue) {
  Event marker;  // of nothing where there is no other
  for_each_queue(queue.device().index(), [&](Queue& other) {
    if (&other != &queue && other.capturing() == nullptr) {
      if (!marker) {
        marker = queue.record();
      }
      other.wait(marker);
    }
  });
}

void set_profiling(bool profiles) {
  {
    const std::lock_guard lock(queues().mutex);
    queues().profiles = profiles;
  }
  for (auto& of_device : queues().table) {
    for_each_created(
        of_device, [profiles](Queue& queue) { queue.set_profiling(profiles); });
  }
}

}  // namespace torch_opencl::runtime
