#include "caching_allocator.h"

#include "block_pool.h"
#include "error.h"
#include "guard_bands.h"
#include "packed_weight_cache.h"
#include "queue.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>

namespace torch_opencl::runtime {

struct CachingAllocator::Impl {
  explicit Impl(Device& owner) : device(owner), pool(owner) {}

  Block* allocate(size_t bytes, int64_t stream_id) {
    const size_t all_bytes = bytes + 2 * guard_band_bytes();
    {
      const std::lock_guard lock(mutex);
      if (Block* block = pool.allocate(all_bytes, owner(stream_id), false)) {
        return block;
      }
      ++pool.statistics.alloc_retries;
    }
    // Without the lock, which other threads' frees need.
    synchronize_enqueued(device.index());
    const std::lock_guard lock(mutex);
    return pool.allocate(all_bytes, owner(stream_id), true);
  }
  Owner owner(int64_t stream_id) const {
    if (pools_of_streams.empty()) [[likely]] {
      return {0, stream_id};
    }
    const auto found = pools_of_streams.find(stream_id);
    return {found == pools_of_streams.end() ? 0 : found->second, stream_id};
  }
  Block* block_at(const void* address) const {
    return pool.allocated_block(guarded_block(address));
  }

  Device& device;
  std::mutex mutex;
  BlockPool pool;
  int64_t last_pool = 0;
  std::map<int64_t, int64_t> pools_of_streams;  // of those that capture
};

void AllocatorStatistics::Counter::increase(int64_t amount) {
  current += amount;
  allocated += amount;
  peak = std::max(peak, current);
}

void AllocatorStatistics::Counter::decrease(int64_t amount) {
  current -= amount;
  freed += amount;
}

CachingAllocator::CachingAllocator(Device& device)
    : impl_(std::make_unique<Impl>(device)) {}

CachingAllocator::~CachingAllocator() = default;

namespace {

// What pending launches and packed weights keep alive; true where there was
// any.
bool give_back_memory(int device_index) {
  const bool had_pending = flush_pending(device_index);
  return invalidate_all_packed(device_index) || had_pending;
}

}  // namespace

void* CachingAllocator::allocate(size_t bytes, int64_t stream_id) {
  Block* block = impl_->allocate(bytes, stream_id);
  if (block == nullptr && give_back_memory(impl_->device.index())) {
    block = impl_->allocate(bytes, stream_id);
  }
  if (block == nullptr) {
    const std::lock_guard lock(impl_->mutex);
    impl_->pool.throw_out_of_memory(bytes);
  }
  return add_guards(impl_->device.index(), stream_id, block->address, bytes);
}

void CachingAllocator::free(void* address) {
  end_packed(address);
  remove_guards(address);
  const std::lock_guard lock(impl_->mutex);
  impl_->pool.free(impl_->block_at(address));
}

void CachingAllocator::record_stream(void* address, int64_t stream_id) {
  const std::lock_guard lock(impl_->mutex);
  Block* block = impl_->block_at(address);
  auto& streams = block->other_streams;
  if (stream_id != block->owner.stream_id &&
      std::find(streams.begin(), streams.end(), stream_id) == streams.end()) {
    streams.push_back(stream_id);
    add_guarded_stream(address, stream_id);
  }
}

void CachingAllocator::wait_for_recorded(void* address, Queue& queue) {
  std::vector<int64_t> streams;
  {
    const std::lock_guard lock(impl_->mutex);
    streams.swap(impl_->block_at(address)->other_streams);
  }
  for (const int64_t stream_id : streams) {
    queue.wait(runtime::queue(impl_->device.index(), stream_id).record());
  }
}

void CachingAllocator::empty_cache() {
  give_back_memory(impl_->device.index());
  std::unique_lock lock(impl_->mutex);
  if (impl_->pool.has_events()) {
    lock.unlock();  // other threads' frees need it
    synchronize_enqueued(impl_->device.index());
    lock.lock();
  }
  impl_->pool.process_events();
  impl_->pool.release_free_segments();
}

int64_t CachingAllocator::new_pool() {
  const std::lock_guard lock(impl_->mutex);
  return ++impl_->last_pool;
}

void CachingAllocator::keep_pool(int64_t pool_id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->pool.keep_pool(pool_id);
}

void CachingAllocator::release_pool(int64_t pool_id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->pool.release_pool(pool_id);
}

void CachingAllocator::begin_pool(int64_t pool_id, int64_t stream_id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->pools_of_streams[stream_id] = pool_id;
}

void CachingAllocator::end_pool(int64_t stream_id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->pools_of_streams.erase(stream_id);
}

AllocatorStatistics CachingAllocator::statistics() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool.statistics;
}

namespace {

template <class Reset>
void for_each_counter(AllocatorStatistics& statistics, Reset reset) {
  using Pool = AllocatorStatistics::Pool;
  for (Pool* pool :
       {&statistics.all, &statistics.small_pool, &statistics.large_pool}) {
    for (auto counter : {&Pool::allocation,
                         &Pool::segment,
                         &Pool::active,
                         &Pool::allocated_bytes,
                         &Pool::reserved_bytes,
                         &Pool::active_bytes,
                         &Pool::inactive_split,
                         &Pool::inactive_split_bytes,
                         &Pool::requested_bytes}) {
      reset(pool->*counter);
    }
  }
}

}  // namespace

void CachingAllocator::reset_peak_statistics() {
  const std::lock_guard lock(impl_->mutex);
  for_each_counter(impl_->pool.statistics,
                   [](AllocatorStatistics::Counter& counter) {
                     counter.peak = counter.current;
                   });
}

void CachingAllocator::reset_accumulated_statistics() {
  const std::lock_guard lock(impl_->mutex);
  for_each_counter(impl_->pool.statistics,
                   [](AllocatorStatistics::Counter& counter) {
                     counter.allocated = 0;
                     counter.freed = 0;
                   });
  impl_->pool.statistics.alloc_retries = 0;
  impl_->pool.statistics.out_of_memory = 0;
}

std::vector<SegmentSnapshot> CachingAllocator::snapshot() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool.snapshot();
}

void CachingAllocator::set_memory_fraction(double fraction) {
  if (!(fraction > 0 && fraction <= 1)) {
    throw Error("opencl: the memory fraction must be in (0, 1]");
  }
  const std::lock_guard lock(impl_->mutex);
  impl_->pool.memory_fraction = fraction;
}

uint64_t CachingAllocator::limit() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->pool.limit();
}

uint64_t CachingAllocator::requested_size(void* address) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->block_at(address)->requested_bytes - 2 * guard_band_bytes();
}

uint64_t CachingAllocator::block_size(void* address) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->block_at(address)->bytes;
}

void* CachingAllocator::allocation_around(const void* address) const {
  const std::lock_guard lock(impl_->mutex);
  const Block* block = impl_->pool.block_around(address);
  return block == nullptr
             ? nullptr
             : reinterpret_cast<void*>(block->address + guard_band_bytes());
}

CachingAllocator& allocator(int device_index) {
  // Never destroyed: tensors may be freed after static destructors have run.
  static std::array<std::atomic<CachingAllocator*>, 128> allocators;
  Device& owner = device(device_index);
  auto& slot = allocators.at(owner.index());
  CachingAllocator* existing = slot.load(std::memory_order_acquire);
  if (existing == nullptr) {
    static std::mutex creation;
    const std::lock_guard lock(creation);
    existing = slot.load(std::memory_order_acquire);
    if (existing == nullptr) {
      existing = new CachingAllocator(owner);
      slot.store(existing, std::memory_order_release);
    }
  }
  return *existing;
}

}  // namespace torch_opencl::runtime
