#include "allocator.h"

#include "fork.h"
#include "stream.h"

#include "../runtime/caching_allocator.h"
#include "../runtime/device_buffer.h"
#include "../runtime/error.h"

#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <vector>

namespace torch_opencl::device {

namespace {

using Counter = runtime::AllocatorStatistics::Counter;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

std::atomic<AllocationObserver*> allocation_observer{nullptr};

AllocationObserver* observer() {
  return allocation_observer.load(std::memory_order_acquire);
}

bool is_profiled() {
  return c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) !=
         nullptr;
}

void report_to_profiler(void* address, int64_t bytes, int device_index) {
  const auto statistics = runtime::allocator(device_index).statistics();
  c10::reportMemoryUsageToProfiler(
      address,
      bytes,
      statistics.all.allocated_bytes.current,
      statistics.all.reserved_bytes.current,
      c10::Device(c10::DeviceType::PrivateUse1,
                  static_cast<c10::DeviceIndex>(device_index)));
}

void free_block(void* address) {
  if (address == nullptr) {
    return;
  }
  // Runs in destructors.
  try {
    const int device_index = runtime::locate(address).device_index;
    auto& blocks = runtime::allocator(device_index);
    if (AllocationObserver* watching = observer()) [[unlikely]] {
      watching->freed(device_index,
                      reinterpret_cast<uint64_t>(address),
                      blocks.block_size(address));
    }
    if (is_profiled()) {
      const auto bytes = static_cast<int64_t>(blocks.block_size(address));
      blocks.free(address);
      report_to_profiler(address, -bytes, device_index);
    } else {
      blocks.free(address);
    }
  } catch (const std::exception& error) {
    TORCH_WARN("opencl: freeing a block failed: ", error.what());
  }
}

void copy_counter(const runtime::AllocatorStatistics& from,
                  Counter runtime::AllocatorStatistics::Pool::*member,
                  StatArray& to) {
  const auto copy = [&](StatType type,
                        const runtime::AllocatorStatistics::Pool& pool) {
    const Counter& counter = pool.*member;
    to[static_cast<size_t>(type)] = {
        counter.current, counter.peak, counter.allocated, counter.freed};
  };
  copy(StatType::AGGREGATE, from.all);
  copy(StatType::SMALL_POOL, from.small_pool);
  copy(StatType::LARGE_POOL, from.large_pool);
}

struct Allocator final : c10::DeviceAllocator {
  at::DataPtr allocate(size_t bytes) override {
    return allocate_on(current_device(), bytes);
  }

  at::DataPtr allocate_on(int device_index, size_t bytes) {
    check_not_forked();
    const c10::Device device(c10::DeviceType::PrivateUse1,
                             static_cast<c10::DeviceIndex>(device_index));
    void* address = nullptr;
    if (bytes > 0) {
      mark_used();
      auto& blocks = runtime::allocator(device_index);
      const int64_t stream_id = current_stream_id(device_index);
      AllocationObserver* watching = observer();
      try {
        address = blocks.allocate(bytes, stream_id);
      } catch (const runtime::OutOfMemoryError& error) {
        if (watching != nullptr) {
          watching->out_of_memory(device_index, bytes);
        }
        TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
      }
      if (watching != nullptr) [[unlikely]] {
        watching->allocated(device_index,
                            reinterpret_cast<uint64_t>(address),
                            blocks.block_size(address),
                            stream_id);
      }
      if (is_profiled()) {
        report_to_profiler(address,
                           static_cast<int64_t>(blocks.block_size(address)),
                           device_index);
      }
    }
    return {address, address, &free_block, device};
  }

  at::DeleterFnPtr raw_deleter() const override { return &free_block; }

  void copy_data(void* destination,
                 const void* source,
                 size_t bytes) const override {
    if (bytes == 0) {
      return;
    }
    const auto to = runtime::locate(destination);
    const auto from = runtime::locate(source);
    TORCH_CHECK(to.memory != nullptr && from.memory != nullptr,
                "opencl: copy_data between addresses that are not both on an "
                "opencl device");
    if (to.device_index == from.device_index) {
      auto& queue = current_queue(to.device_index);
      queue.copy(
          from.memory, from.byte_offset, to.memory, to.byte_offset, bytes);
      queue.wrote(destination);
      return;
    }
    std::vector<char> host(bytes);
    current_queue(from.device_index)
        .read(from.memory, from.byte_offset, host.data(), bytes, true);
    auto& queue = current_queue(to.device_index);
    queue.write(to.memory, to.byte_offset, host.data(), bytes, true);
    queue.wrote(destination);
  }

  bool initialized() override { return runtime::device_count() > 0; }

  void emptyCache(c10::MempoolId_t /*mempool_id*/) override {
    for (int index = 0; index < runtime::device_count(); ++index) {
      if (runtime::device(index).has_context()) {
        runtime::allocator(index).empty_cache();
      }
    }
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    // Storages over memory that came from elsewhere are not ours to reuse.
    if (data.get() != nullptr && data.get_deleter() == &free_block) {
      runtime::allocator(data.device().index())
          .record_stream(data.get_context(), stream.id());
    }
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex device_index) override {
    using Pool = runtime::AllocatorStatistics::Pool;
    runtime::flush_pending(device_index);  // frees what it holds
    const auto from = runtime::allocator(device_index).statistics();
    c10::CachingDeviceAllocator::DeviceStats stats;
    copy_counter(from, &Pool::allocation, stats.allocation);
    copy_counter(from, &Pool::segment, stats.segment);
    copy_counter(from, &Pool::active, stats.active);
    copy_counter(from, &Pool::inactive_split, stats.inactive_split);
    copy_counter(from, &Pool::allocated_bytes, stats.allocated_bytes);
    copy_counter(from, &Pool::reserved_bytes, stats.reserved_bytes);
    copy_counter(from, &Pool::active_bytes, stats.active_bytes);
    copy_counter(from, &Pool::inactive_split_bytes, stats.inactive_split_bytes);
    copy_counter(from, &Pool::requested_bytes, stats.requested_bytes);
    stats.num_alloc_retries = from.alloc_retries;
    stats.num_ooms = from.out_of_memory;
    stats.num_device_alloc = from.all.segment.allocated;
    stats.num_device_free = from.all.segment.freed;
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device_index) override {
    runtime::allocator(device_index).reset_accumulated_statistics();
  }

  void resetPeakStats(c10::DeviceIndex device_index) override {
    runtime::allocator(device_index).reset_peak_statistics();
  }

  // OpenCL does not tell what other processes use: free is what this process
  // may still reserve, and of the host's memory what is available.
  std::pair<size_t, size_t> getMemoryInfo(
      c10::DeviceIndex device_index) override {
    auto& blocks = runtime::allocator(device_index);
    const auto reserved =
        static_cast<uint64_t>(blocks.statistics().all.reserved_bytes.current);
    const uint64_t limit = blocks.limit();
    const uint64_t room = limit > reserved ? limit - reserved : 0;
    const runtime::Device& device = runtime::device(device_index);
    return {std::min(room, runtime::available_memory(device).value_or(room)),
            device.info().global_memory};
  }
};

Allocator* instance() {
  static auto* created = new Allocator;
  return created;
}

struct StorageAllocator final : c10::Allocator {
  int device_index = 0;

  at::DataPtr allocate(size_t bytes) override {
    return instance()->allocate_on(device_index, bytes);
  }
  at::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* destination,
                 const void* source,
                 size_t bytes) const override {
    instance()->copy_data(destination, source, bytes);
  }
};

struct Registration {
  Registration() {
    c10::SetAllocator(c10::DeviceType::PrivateUse1, allocator());
  }
} registration;

}  // namespace

c10::DeviceAllocator* allocator() {
  return instance();
}

c10::Allocator* storage_allocator(int device_index) {
  constexpr size_t kDevices = std::numeric_limits<c10::DeviceIndex>::max() + 1;
  static auto* all = [] {
    auto* created = new std::array<StorageAllocator, kDevices>();
    for (size_t i = 0; i < kDevices; ++i) {
      created->at(i).device_index = static_cast<int>(i);
    }
    return created;
  }();
  return &all->at(device_index);
}

bool owns_block(const c10::Storage& storage) {
  return storage.data_ptr().get_deleter() == &free_block;
}

void observe_allocations(AllocationObserver* observer) {
  allocation_observer.store(observer, std::memory_order_release);
}

}  // namespace torch_opencl::device
