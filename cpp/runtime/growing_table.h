// A hash table that only grows, for what every launch looks up.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace torch_opencl::runtime {

// What was found last is looked at first, without a lock. Values are small:
// pointers.
template <class Key, class Value, class Hash>
class GrowingTable {
 public:
  // `make()` returns the value of a key that is not there. Threads that ask at
  // once may each make one: the first stays.
  template <class Make>
  Value find(const Key& key, const Make& make) {
    constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;  // 2^64 / phi
    const uint64_t hash = Hash()(key);
    std::atomic<const Entry*>& slot =
        recent_[hash * kMultiplier >> (64 - kSlotBits)];
    const Entry* recent = slot.load(std::memory_order_acquire);
    if (recent != nullptr && recent->first == key) [[likely]] {
      return recent->second;
    }
    const Entry& found = find_or_make(key, make);
    slot.store(&found, std::memory_order_release);
    return found.second;
  }

 private:
  using Map = std::unordered_map<Key, Value, Hash>;
  using Entry = typename Map::value_type;

  template <class Make>
  const Entry& find_or_make(const Key& key, const Make& make) {
    {
      const std::shared_lock lock(mutex_);
      const auto found = map_.find(key);
      if (found != map_.end()) {
        return *found;
      }
    }
    const Value value = make();
    const std::unique_lock lock(mutex_);
    return *map_.emplace(key, value).first;
  }

  static constexpr int kSlotBits = 8;

  std::shared_mutex mutex_;
  Map map_;  // whose entries stay where they are
  std::array<std::atomic<const Entry*>, size_t{1} << kSlotBits> recent_{};
};

}  // namespace torch_opencl::runtime
