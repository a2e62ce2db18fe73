#include "forms.h"

#include "address_space.h"

#include <map>
#include <mutex>
#include <utility>

namespace torch_opencl::runtime {

namespace {

// An allocation.
struct Range {
  uint64_t bytes = 0;
  Segment* segment = nullptr;
  bool may_keep = true;
  std::map<FormKey, std::shared_ptr<void>> forms;  // null after the first use
};
using Ranges = std::map<uint64_t, Range>;  // by address

std::mutex mutex;

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
         segment->ranges_with_forms.load(std::memory_order_relaxed) > 0;
}

Range& range_at(const void* begin, uint64_t bytes, Segment* segment) {
  const auto [position, is_new] =
      ranges().try_emplace(number_of(begin), Range{bytes, segment, true, {}});
  if (is_new) {
    segment->ranges_with_forms.fetch_add(1, std::memory_order_relaxed);
  }
  return position->second;
}

// Forms are destroyed, which frees memory, after the lock is given back.
Range take(Ranges::iterator position) {
  position->second.segment->ranges_with_forms.fetch_sub(
      1, std::memory_order_relaxed);
  return std::move(ranges().extract(position).mapped());
}

}  // namespace

FormUse use_form(const void* begin, uint64_t bytes, const FormKey& key) {
  Segment* segment = find_segment(begin);
  if (segment == nullptr) {
    return {};
  }
  const std::lock_guard lock(mutex);
  Range& range = range_at(begin, bytes, segment);
  if (!range.may_keep) {
    return {};
  }
  const auto [form, is_new] = range.forms.try_emplace(key);
  return {form->second, !is_new};
}

void keep_form(const void* begin,
               const FormKey& key,
               std::shared_ptr<void> form) {
  const std::lock_guard lock(mutex);
  const auto range = ranges().find(number_of(begin));
  if (range == ranges().end()) {
    return;
  }
  const auto used = range->second.forms.find(key);
  if (used != range->second.forms.end()) {
    used->second.swap(form);
  }
}

void forget_forms(const void* address) noexcept {
  if (!has_ranges_near(address)) {
    return;
  }
  Range forgotten;
  const std::lock_guard lock(mutex);
  auto after = ranges().upper_bound(number_of(address));
  if (after == ranges().begin()) {
    return;
  }
  const auto range = std::prev(after);
  if (range->second.may_keep &&
      number_of(address) - range->first < range->second.bytes) {
    forgotten = take(range);
  }
}

bool forget_all_forms(int device_index) noexcept {
  std::vector<Range> forgotten;
  bool has_forms = false;
  const std::lock_guard lock(mutex);
  for (auto next = ranges().begin(); next != ranges().end();) {
    const auto range = next++;
    if (range->second.segment->device_index != device_index ||
        !range->second.may_keep) {
      continue;
    }
    for (const auto& [key, form] : range->second.forms) {
      has_forms |= form != nullptr;
    }
    forgotten.push_back(take(range));
  }
  return has_forms;
}

void never_keep_forms(const void* begin, uint64_t bytes) {
  Segment* segment = find_segment(begin);
  if (segment == nullptr) {
    return;
  }
  std::map<FormKey, std::shared_ptr<void>> forgotten;
  const std::lock_guard lock(mutex);
  Range& range = range_at(begin, bytes, segment);
  range.may_keep = false;
  range.forms.swap(forgotten);
}

void end_forms(const void* begin) noexcept {
  if (!has_ranges_near(begin)) {
    return;
  }
  Range ended;
  const std::lock_guard lock(mutex);
  const auto range = ranges().find(number_of(begin));
  if (range != ranges().end()) {
    ended = take(range);
  }
}

}  // namespace torch_opencl::runtime
