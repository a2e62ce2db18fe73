// Device memory: blocks carved from cl_mem segments. Every segment owns a
// reserved range of virtual addresses that nothing ever dereferences, so a
// block has a unique address that supports arithmetic and maps back to
// (cl_mem, byte offset).
#pragma once

#include "queue.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch_opencl::runtime {

struct AllocatorStatistics {
  struct Counter {
    int64_t current = 0, peak = 0, allocated = 0, freed = 0;
    void increase(int64_t amount);
    void decrease(int64_t amount);
  };
  struct Pool {
    Counter allocation, segment, active;                    // counts
    Counter allocated_bytes, reserved_bytes, active_bytes;  // bytes
    Counter inactive_split, inactive_split_bytes, requested_bytes;
  };
  Pool all, small_pool, large_pool;
  int64_t alloc_retries = 0;
  int64_t out_of_memory = 0;
};

struct SegmentSnapshot {
  uint64_t address, bytes, allocated_bytes;
  int64_t stream_id;
  bool is_small;
  struct Block {
    uint64_t address, bytes, requested_bytes;
    bool allocated;
    bool active;  // allocated, or freed but still in use by a stream
  };
  std::vector<Block> blocks;
};

class CachingAllocator {
 public:
  explicit CachingAllocator(Device& device);
  ~CachingAllocator();

  // An address for `bytes` (> 0) usable on `stream_id` at once. A cached block
  // of the same stream is reused without waiting. Before giving up, waits for
  // pending frees, flushes the cache, drops packed weights and tries
  // again; then throws OutOfMemoryError naming requested, allocated, cached,
  // the limit and CL_DEVICE_MAX_MEM_ALLOC_SIZE.
  void* allocate(size_t bytes, int64_t stream_id);
  void free(void* address);
  // The block is also used on `stream_id`: not reused before that stream has
  // passed the point of its free.
  void record_stream(void* address, int64_t stream_id);
  // `queue` waits for the streams that were recorded, as a free would: what
  // it runs next may write to the block.
  void wait_for_recorded(void* address, Queue& queue);
  // Drops packed weights, too.
  void empty_cache();

  // A pool of memory for graphs, kept until it is released as often as it was
  // kept. What is allocated on `stream_id` between begin_pool and end_pool
  // comes from it, and once free is used only for that again.
  int64_t new_pool();
  void keep_pool(int64_t pool_id);
  void release_pool(int64_t pool_id);
  void begin_pool(int64_t pool_id, int64_t stream_id);
  void end_pool(int64_t stream_id);

  AllocatorStatistics statistics() const;
  void reset_peak_statistics();
  void reset_accumulated_statistics();
  std::vector<SegmentSnapshot> snapshot() const;

  // Bytes this process may reserve, as a fraction of the device's memory,
  // (0, 1]; default 1.
  void set_memory_fraction(double fraction);
  uint64_t limit() const;
  uint64_t requested_size(void* address) const;
  uint64_t block_size(void* address) const;
  // Where the allocation that `address` lies in begins; null of other memory.
  void* allocation_around(const void* address) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

CachingAllocator& allocator(int device_index);

struct Location {
  cl_mem memory = nullptr;
  uint64_t byte_offset = 0;
  int device_index = -1;
};
// The segment behind an address; memory is null when the address is not ours.
// Whoever writes there calls invalidate_packed (packed_weight_cache.h).
Location locate(const void* address) noexcept;

// A buffer that exists elsewhere (pyopencl), given an address range of its
// own. The reference is retained until release_external.
void* adopt_external(int device_index, cl_mem memory, size_t bytes);
void release_external(void* address);

// Page-locked host memory: a mapped CL_MEM_ALLOC_HOST_PTR buffer.
void* allocate_pinned(int device_index, size_t bytes);
void free_pinned(void* host);
bool is_pinned(const void* host) noexcept;

}  // namespace torch_opencl::runtime
