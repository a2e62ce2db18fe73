#include "packed_weight_cache.h"

#include "address_space.h"

#include <map>
#include <mutex>
#include <utility>

namespace torch_opencl::runtime {

namespace {

// An allocation, between two writes to it.
struct Range {
  uint64_t bytes = 0;
  Segment* segment = nullptr;
  uint64_t generation = 0;
  bool may_keep = true;
  std::map<PackedKey, std::shared_ptr<void>>
      packed;  // null after the first use
};
using Ranges = std::map<uint64_t, Range>;  // by address

std::mutex mutex;
uint64_t last_generation = 0;  // under the mutex

// Never destroyed: tensors may be freed after static destructors have run.
Ranges& ranges() {
  static auto* all = new Ranges;
  return *all;
}

uint64_t number_of(const void* address) {
  return reinterpret_cast<uint64_t>(address);
}

bool has_ranges_near(const void* address) {
  const Segment* segment = find_segment(address);
  return segment != nullptr &&
         segment->ranges_with_packed.load(std::memory_order_relaxed) > 0;
}

Range& range_at(const void* begin, uint64_t bytes, Segment* segment) {
  const auto [position, is_new] = ranges().try_emplace(number_of(begin));
  if (is_new) {
    position->second.bytes = bytes;
    position->second.segment = segment;
    position->second.generation = ++last_generation;
    segment->ranges_with_packed.fetch_add(1, std::memory_order_relaxed);
  }
  return position->second;
}

// What is packed is destroyed, which frees memory, after the lock is given
// back: the node goes to the caller.
Ranges::node_type take(Ranges::iterator position) {
  position->second.segment->ranges_with_packed.fetch_sub(
      1, std::memory_order_relaxed);
  return ranges().extract(position);
}

}  // namespace

PackedUse find_packed(const void* begin, uint64_t bytes, const PackedKey& key) {
  Segment* segment = find_segment(begin);
  if (segment == nullptr) {
    return {};
  }
  const std::lock_guard lock(mutex);
  Range& range = range_at(begin, bytes, segment);
  if (!range.may_keep) {
    return {};
  }
  const auto [packed, is_new] = range.packed.try_emplace(key);
  return {packed->second, !is_new, range.generation};
}

void keep_packed(const void* begin,
                 const PackedKey& key,
                 uint64_t generation,
                 std::shared_ptr<void> packed) {
  const std::lock_guard lock(mutex);
  const auto range = ranges().find(number_of(begin));
  if (range == ranges().end() || range->second.generation != generation) {
    return;
  }
  const auto used = range->second.packed.find(key);
  if (used != range->second.packed.end()) {
    used->second.swap(packed);
  }
}

void invalidate_packed(const void* address) noexcept {
  if (address == nullptr || !has_ranges_near(address)) {
    return;
  }
  Ranges::node_type invalid;
  const std::lock_guard lock(mutex);
  auto after = ranges().upper_bound(number_of(address));
  if (after == ranges().begin()) {
    return;
  }
  const auto range = std::prev(after);
  if (range->second.may_keep &&
      number_of(address) - range->first < range->second.bytes) {
    invalid = take(range);
  }
}

bool invalidate_all_packed(int device_index) {
  std::vector<Ranges::node_type> invalid;
  bool has_packed = false;
  const std::lock_guard lock(mutex);
  invalid.reserve(ranges().size());  // before any is taken: it may throw
  for (auto next = ranges().begin(); next != ranges().end();) {
    const auto range = next++;
    if (range->second.segment->device_index != device_index ||
        !range->second.may_keep) {
      continue;
    }
    for (const auto& [key, packed] : range->second.packed) {
      has_packed |= packed != nullptr;
    }
    invalid.push_back(take(range));
  }
  return has_packed;
}

void never_keep_packed(const void* begin, uint64_t bytes) {
  Segment* segment = find_segment(begin);
  if (segment == nullptr) {
    return;
  }
  std::map<PackedKey, std::shared_ptr<void>> invalid;
  const std::lock_guard lock(mutex);
  Range& range = range_at(begin, bytes, segment);
  range.may_keep = false;
  range.packed.swap(invalid);
}

void end_packed(const void* begin) noexcept {
  if (!has_ranges_near(begin)) {
    return;
  }
  Ranges::node_type ended;
  const std::lock_guard lock(mutex);
  const auto range = ranges().find(number_of(begin));
  if (range != ranges().end()) {
    ended = take(range);
  }
}

}  // namespace torch_opencl::runtime
