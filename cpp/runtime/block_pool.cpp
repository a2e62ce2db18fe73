#include "block_pool.h"

#include "device_buffer.h"
#include "error.h"
#include "quirks.h"

#include <cstdio>
#include <memory>

namespace torch_opencl::runtime {

namespace {

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool is_out_of_memory(int code) {
  return code == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
         code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY ||
         code == CL_INVALID_BUFFER_SIZE;
}

std::string format_bytes(uint64_t bytes) {
  constexpr const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text,
                sizeof(text),
                unit == 0 ? "%.0f %s" : "%.2f %s",
                value,
                units[unit]);
  return text;
}

}  // namespace

void BlockPool::insert_free(Block* block) {
  block->state = BlockState::kFree;
  (block->is_small ? small_blocks_ : large_blocks_).insert(block);
  if (block->is_split()) {
    count(block->is_small, [&](AllocatorStatistics::Pool& pool) {
      pool.inactive_split.increase(1);
      pool.inactive_split_bytes.increase(block->bytes);
    });
  }
}

void BlockPool::remove_free(Block* block) {
  (block->is_small ? small_blocks_ : large_blocks_).erase(block);
  if (block->is_split()) {
    count(block->is_small, [&](AllocatorStatistics::Pool& pool) {
      pool.inactive_split.decrease(1);
      pool.inactive_split_bytes.decrease(block->bytes);
    });
  }
}

Block* BlockPool::take_free(uint64_t bytes, bool is_small, const Owner& owner) {
  Block wanted;
  wanted.owner = owner;
  wanted.bytes = bytes;
  const FreeBlocks& blocks = is_small ? small_blocks_ : large_blocks_;
  const auto found = blocks.lower_bound(&wanted);
  if (found == blocks.end() || (*found)->owner != owner) {
    return nullptr;
  }
  Block* block = *found;
  remove_free(block);
  return block;
}

void BlockPool::merge_next(Block* block) {
  Block* next = block->next;
  block->bytes += next->bytes;
  block->next = next->next;
  if (block->next != nullptr) {
    block->next->previous = block;
  }
  delete next;
}

void BlockPool::make_free(Block* block) {
  count(block->is_small, [&](AllocatorStatistics::Pool& pool) {
    pool.active.decrease(1);
    pool.active_bytes.decrease(block->bytes);
    pool.requested_bytes.decrease(block->requested_bytes);
  });
  block->requested_bytes = 0;
  block->other_streams.clear();
  if (block->next != nullptr && block->next->state == BlockState::kFree) {
    remove_free(block->next);
    merge_next(block);
  }
  if (block->previous != nullptr &&
      block->previous->state == BlockState::kFree) {
    block = block->previous;
    remove_free(block);
    merge_next(block);
  }
  insert_free(block);
}

void BlockPool::split(Block* block, uint64_t bytes) {
  const uint64_t remaining_bytes = block->bytes - bytes;
  if (block->is_small ? remaining_bytes < kBlockRounding
                      : remaining_bytes <= kSmallRequest) {
    return;
  }
  auto* remaining = new Block;
  remaining->segment = block->segment;
  remaining->address = block->address + bytes;
  remaining->bytes = remaining_bytes;
  remaining->owner = block->owner;
  remaining->is_small = block->is_small;
  remaining->previous = block;
  remaining->next = block->next;
  if (remaining->next != nullptr) {
    remaining->next->previous = remaining;
  }
  block->next = remaining;
  block->bytes = bytes;
  insert_free(remaining);
}

Block* BlockPool::create_segment(uint64_t bytes,
                                 bool is_small,
                                 const Owner& owner) {
  const uint64_t reserved = statistics.all.reserved_bytes.current;
  if (reserved + bytes > limit() || !has_memory_for(device_, bytes)) {
    return nullptr;
  }
  cl_int code = CL_SUCCESS;
  cl_mem memory = create_buffer(device_, bytes, &code);
  if (code != CL_SUCCESS) {
    if (is_out_of_memory(code)) {
      return nullptr;
    }
    throw_opencl_error(code, "clCreateBuffer", __FILE__, __LINE__);
  }
  auto block = std::make_unique<Block>();
  const auto give_up = [&] {
    if (block->segment != nullptr) {
      unmap_segment(block->segment);
    }
    log_opencl_error(api().clReleaseMemObject(memory), "clReleaseMemObject");
  };
  try {
    // Drivers that allocate at the first use would fail later, in some kernel.
    queue(device_.index(), owner.stream_id).touch(memory);
    block->segment = map_segment(device_.index(), memory, bytes);
    block->address = block->segment->address;
    block->bytes = bytes;
    block->owner = owner;
    block->is_small = is_small;
    segments_[block->address] = block.get();
  } catch (const OpenCLError& error) {
    give_up();
    if (is_out_of_memory(error.code)) {
      return nullptr;
    }
    throw;
  } catch (const OutOfMemoryError&) {
    give_up();
    return nullptr;  // addresses: segments that are released have some
  } catch (...) {
    give_up();
    throw;
  }
  count(is_small, [&](AllocatorStatistics::Pool& pool) {
    pool.segment.increase(1);
    pool.reserved_bytes.increase(bytes);
  });
  return block.release();
}

Block* BlockPool::grow(uint64_t bytes, bool is_small, const Owner& owner) {
  uint64_t segment_bytes = round_up(bytes, kSegmentRounding);
  if (is_small) {
    segment_bytes = kSmallSegment;
  } else if (bytes < kLargeRequest) {
    segment_bytes = kLargeSegment;
  }
  Block* block = create_segment(segment_bytes, is_small, owner);
  if (block == nullptr && segment_bytes != bytes) {
    block = create_segment(bytes, is_small, owner);  // without headroom
  }
  return block;
}

void BlockPool::release_segment(Block* block) {
  remove_free(block);
  segments_.erase(block->address);
  count(block->is_small, [&](AllocatorStatistics::Pool& pool) {
    pool.segment.decrease(1);
    pool.reserved_bytes.decrease(block->bytes);
  });
  const cl_mem memory = block->segment->memory;
  unmap_segment(block->segment);
  delete block;
  // Commands already enqueued keep the buffer alive until they finish.
  const cl_int code = api().clReleaseMemObject(memory);
  if (code != CL_SUCCESS) {
    log_opencl_error(code, "clReleaseMemObject");
  }
}

void BlockPool::release_free_segments() {
  for (FreeBlocks* blocks : {&small_blocks_, &large_blocks_}) {
    for (auto next = blocks->begin(); next != blocks->end();) {
      Block* block = *next++;
      if (!block->is_split() && !kept_pools_.contains(block->owner.pool_id)) {
        release_segment(block);
      }
    }
  }
}

void BlockPool::release_pool(int64_t pool_id) {
  const auto kept = kept_pools_.find(pool_id);
  if (kept != kept_pools_.end() && --kept->second == 0) {
    kept_pools_.erase(kept);
  }
}

void BlockPool::process_events() {
  for (auto stream = events_.begin(); stream != events_.end();) {
    auto& waiting = stream->second;
    while (!waiting.empty()) {
      auto& [event, block] = waiting.front();
      try {
        if (!event.query()) {
          break;
        }
      } catch (const OpenCLError&) {
        // A command that failed no longer uses the block; the error itself
        // surfaces at the stream's next synchronisation.
      }
      Block* finished = block;
      waiting.pop_front();
      if (--finished->unfinished_events == 0) {
        make_free(finished);
      }
    }
    stream = waiting.empty() ? events_.erase(stream) : std::next(stream);
  }
}

Block* BlockPool::allocate(uint64_t bytes,
                           const Owner& owner,
                           bool releases_cached) {
  if (refuses_allocation(device_.info(), bytes)) {
    throw_out_of_memory(bytes);
  }
  process_events();
  const uint64_t block_bytes = round_up(bytes, kBlockRounding);
  const bool is_small = block_bytes <= kSmallRequest;

  Block* block = take_free(block_bytes, is_small, owner);
  if (block == nullptr && releases_cached) {
    release_free_segments();
  }
  if (block == nullptr) {
    block = grow(block_bytes, is_small, owner);
  }
  if (block == nullptr) {
    return nullptr;
  }

  split(block, block_bytes);
  block->state = BlockState::kAllocated;
  block->requested_bytes = bytes;
  allocated_blocks_[block->address] = block;
  count(is_small, [&](AllocatorStatistics::Pool& pool) {
    pool.allocation.increase(1);
    pool.allocated_bytes.increase(block->bytes);
    pool.active.increase(1);
    pool.active_bytes.increase(block->bytes);
    pool.requested_bytes.increase(bytes);
  });
  return block;
}

void BlockPool::free(Block* block) {
  allocated_blocks_.erase(block->address);
  count(block->is_small, [&](AllocatorStatistics::Pool& pool) {
    pool.allocation.decrease(1);
    pool.allocated_bytes.decrease(block->bytes);
  });
  block->state = BlockState::kPending;
  for (const int64_t stream_id : block->other_streams) {
    try {
      Event event = queue(device_.index(), stream_id).record_enqueued();
      events_[stream_id].emplace_back(std::move(event), block);
      ++block->unfinished_events;
    } catch (const OpenCLError& error) {
      // A queue that takes no marker is lost and runs nothing more.
      log_opencl_error(error.code, "clEnqueueMarkerWithWaitList");
    }
  }
  if (block->unfinished_events == 0) {
    make_free(block);
  }
}

std::vector<SegmentSnapshot> BlockPool::snapshot() const {
  std::vector<SegmentSnapshot> result;
  for (const auto& [address, first] : segments_) {
    SegmentSnapshot segment{
        address, 0, 0, first->owner.stream_id, first->is_small, {}};
    for (const Block* block = first; block != nullptr; block = block->next) {
      const bool allocated = block->state == BlockState::kAllocated;
      segment.bytes += block->bytes;
      segment.allocated_bytes += allocated ? block->bytes : 0;
      segment.blocks.push_back({block->address,
                                block->bytes,
                                block->requested_bytes,
                                allocated,
                                block->state != BlockState::kFree});
    }
    result.push_back(std::move(segment));
  }
  return result;
}

uint64_t BlockPool::limit() const {
  return static_cast<uint64_t>(
      memory_fraction * static_cast<double>(device_.info().global_memory));
}

Block* BlockPool::allocated_block(const void* address) const {
  const auto found =
      allocated_blocks_.find(reinterpret_cast<uint64_t>(address));
  if (found == allocated_blocks_.end()) {
    throw Error("opencl: address is not the start of an allocated block");
  }
  return found->second;
}

const Block* BlockPool::block_around(const void* address) const {
  const auto number = reinterpret_cast<uint64_t>(address);
  const auto after = segments_.upper_bound(number);
  if (after == segments_.begin()) {
    return nullptr;
  }
  for (const Block* block = std::prev(after)->second; block != nullptr;
       block = block->next) {
    if (number - block->address < block->bytes) {
      return block->state == BlockState::kAllocated ? block : nullptr;
    }
  }
  return nullptr;
}

void BlockPool::throw_out_of_memory(uint64_t requested) {
  ++statistics.out_of_memory;
  const uint64_t reserved = statistics.all.reserved_bytes.current;
  const uint64_t allocated = statistics.all.allocated_bytes.current;
  const auto available = available_memory(device_);
  throw OutOfMemoryError(
      "OpenCL out of memory. Tried to allocate " + format_bytes(requested) +
      ". opencl:" + std::to_string(device_.index()) + " (" +
      device_.info().name + ") has a total capacity of " +
      format_bytes(device_.info().global_memory) +
      ", of which this process may use " + format_bytes(limit()) + ". Of it " +
      format_bytes(allocated) + " is allocated by PyTorch, and " +
      format_bytes(reserved - allocated) +
      " is cached by PyTorch but unallocated." +
      (available.has_value() ? " The host has " + format_bytes(*available) +
                                   " available for this device."
                             : "") +
      " The driver's largest allocation is said to be " +
      format_bytes(device_.info().max_allocation) +
      " (CL_DEVICE_MAX_MEM_ALLOC_SIZE" + allocation_switch(device_.info()) +
      ").");
}

}  // namespace torch_opencl::runtime
