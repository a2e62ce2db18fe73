// The blocks of a caching allocator: segments, free sets, splitting, merging
// and the events that blocks wait for. Not thread-safe: the allocator locks.
#pragma once

#include "address_space.h"
#include "caching_allocator.h"

#include <compare>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch_opencl::runtime {

// Requests up to kSmallRequest share kSmallSegment buffers; larger ones up to
// kLargeRequest share kLargeSegment buffers; beyond that a segment is the
// request rounded up to kSegmentRounding.
constexpr uint64_t kBlockRounding = 512;
constexpr uint64_t kSmallRequest = uint64_t{1} << 20;
constexpr uint64_t kSmallSegment = uint64_t{2} << 20;
constexpr uint64_t kLargeRequest = uint64_t{10} << 20;
constexpr uint64_t kLargeSegment = uint64_t{20} << 20;
constexpr uint64_t kSegmentRounding = uint64_t{2} << 20;

// Whose blocks they are: memory goes from a stream to no other, and from a
// graph's pool to nobody while the pool is kept.
struct Owner {
  int64_t pool_id = 0;  // 0: of no graph
  int64_t stream_id = 0;
  auto operator<=>(const Owner&) const = default;
};

enum class BlockState : uint8_t { kFree, kAllocated, kPending };

// Blocks of a segment form a list in address order. Merging keeps the left
// one, so a segment's first block never changes.
struct Block {
  Segment* segment = nullptr;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t requested_bytes = 0;
  Owner owner;
  bool is_small = false;
  BlockState state = BlockState::kFree;
  Block* previous = nullptr;
  Block* next = nullptr;
  std::vector<int64_t> other_streams;  // from record_stream
  int unfinished_events = 0;

  bool is_split() const { return previous != nullptr || next != nullptr; }
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return std::tie(a->owner, a->bytes, a->address) <
           std::tie(b->owner, b->bytes, b->address);
  }
};
using FreeBlocks = std::set<Block*, BySize>;

class BlockPool {
 public:
  explicit BlockPool(Device& device) : device_(device) {}

  // Null when memory is short. `releases_cached` gives segments back to the
  // driver where no cached block fits: queued commands may hold their buffers,
  // so that helps once the device has come to rest.
  Block* allocate(uint64_t bytes, const Owner& owner, bool releases_cached);
  [[noreturn]] void throw_out_of_memory(uint64_t requested);
  void free(Block* block);
  // Throws when `address` is not the start of an allocated block.
  Block* allocated_block(const void* address) const;
  // The allocated one that `address` lies in, or null.
  const Block* block_around(const void* address) const;
  // Frees the blocks whose events have completed.
  void process_events();
  bool has_events() const { return !events_.empty(); }
  void release_free_segments();
  // While kept, a graph's pool gives no segment back.
  void keep_pool(int64_t pool_id) { ++kept_pools_[pool_id]; }
  void release_pool(int64_t pool_id);

  std::vector<SegmentSnapshot> snapshot() const;
  uint64_t limit() const;

  double memory_fraction = 1;
  AllocatorStatistics statistics;

 private:
  template <class Update>
  void count(bool is_small, Update update) {
    update(statistics.all);
    update(is_small ? statistics.small_pool : statistics.large_pool);
  }

  void insert_free(Block* block);
  void remove_free(Block* block);
  // Out of the free set; null where no cached block fits.
  Block* take_free(uint64_t bytes, bool is_small, const Owner& owner);
  // Both are out of the free set; `block` takes over what follows it.
  void merge_next(Block* block);
  void make_free(Block* block);
  void split(Block* block, uint64_t bytes);
  // A block of one new segment, not in the free set; null when memory is
  // short.
  Block* create_segment(uint64_t bytes, bool is_small, const Owner& owner);
  Block* grow(uint64_t bytes, bool is_small, const Owner& owner);
  void release_segment(Block* block);

  Device& device_;
  FreeBlocks small_blocks_;
  FreeBlocks large_blocks_;
  std::unordered_map<uint64_t, Block*> allocated_blocks_;
  std::map<uint64_t, Block*> segments_;  // address -> first block
  // By stream, in the order of the frees.
  std::map<int64_t, std::deque<std::pair<Event, Block*>>> events_;
  std::map<int64_t, int> kept_pools_;  // how often
};

}  // namespace torch_opencl::runtime
