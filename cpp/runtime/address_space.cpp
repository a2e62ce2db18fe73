#include "address_space.h"

#include "caching_allocator.h"
#include "error.h"
#include "packed_weight_cache.h"

#include <sys/mman.h>

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

namespace torch_opencl::runtime {

namespace {

void* reserve_pages(uint64_t bytes, int protection) {
  void* address = mmap(nullptr,
                       bytes,
                       protection,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1,
                       0);
  return address == MAP_FAILED ? nullptr : address;
}

class AddressSpace {
 public:
  static AddressSpace& instance() {
    static AddressSpace* space = [] {
      auto* created = new AddressSpace;
      published_.store(created, std::memory_order_release);
      return created;
    }();
    return *space;
  }
  // Null until the first segment: looking up a host address reserves nothing.
  static const AddressSpace* published() noexcept {
    return published_.load(std::memory_order_acquire);
  }

  Segment* map(int device_index, cl_mem memory, uint64_t bytes);
  void unmap(Segment* segment);

  Segment* find(uint64_t address) const noexcept {
    if (address - base_ >= bytes_) {  // below base_ wraps around
      return nullptr;
    }
    Segment* segment = table_[(address - base_) / kAddressGranule].load(
        std::memory_order_acquire);
    if (segment == nullptr || address - segment->address >= segment->bytes) {
      return nullptr;
    }
    return segment;
  }

 private:
  AddressSpace();

  uint64_t take_range(uint64_t granules);
  void give_range(uint64_t first, uint64_t granules);

  static std::atomic<const AddressSpace*> published_;

  uint64_t base_ = 0;
  uint64_t bytes_ = 0;
  // Pages of the table that no segment has touched are never committed.
  std::atomic<Segment*>* table_ = nullptr;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_ranges_;  // first granule -> count
  std::vector<Segment*> unused_records_;
};

std::atomic<const AddressSpace*> AddressSpace::published_{nullptr};

AddressSpace::AddressSpace() {
  constexpr uint64_t kLargest = uint64_t{8} << 40;
  constexpr uint64_t kSmallest = uint64_t{4} << 30;
  void* pages = nullptr;
  for (bytes_ = kLargest; bytes_ >= kSmallest; bytes_ /= 2) {
    pages = reserve_pages(bytes_, PROT_NONE);
    if (pages != nullptr) {
      break;
    }
  }
  if (pages == nullptr) {
    throw Error(
        "opencl: cannot reserve virtual address space for device memory "
        "(is there a limit from `ulimit -v`?)");
  }
  const auto start = reinterpret_cast<uint64_t>(pages);
  base_ = (start + kAddressGranule - 1) / kAddressGranule * kAddressGranule;
  bytes_ = (start + bytes_ - base_) / kAddressGranule * kAddressGranule;
  const uint64_t granules = bytes_ / kAddressGranule;
  void* table = reserve_pages(granules * sizeof(std::atomic<Segment*>),
                              PROT_READ | PROT_WRITE);
  if (table == nullptr) {
    throw Error("opencl: cannot reserve the table of device addresses");
  }
  table_ = static_cast<std::atomic<Segment*>*>(table);
  free_ranges_[0] = granules;
}

uint64_t AddressSpace::take_range(uint64_t granules) {
  for (auto range = free_ranges_.begin(); range != free_ranges_.end();
       ++range) {
    const auto [first, count] = *range;
    if (count < granules) {
      continue;
    }
    free_ranges_.erase(range);
    if (count > granules) {
      free_ranges_[first + granules] = count - granules;
    }
    return first;
  }
  throw OutOfMemoryError("opencl: the reserved address space is used up");
}

void AddressSpace::give_range(uint64_t first, uint64_t granules) {
  auto next = free_ranges_.lower_bound(first);
  if (next != free_ranges_.end() && next->first == first + granules) {
    granules += next->second;
    next = free_ranges_.erase(next);
  }
  if (next != free_ranges_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == first) {
      previous->second += granules;
      return;
    }
  }
  free_ranges_[first] = granules;
}

Segment* AddressSpace::map(int device_index, cl_mem memory, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t granules = (bytes + kAddressGranule - 1) / kAddressGranule;
  const uint64_t first = take_range(granules);
  if (unused_records_.empty()) {
    unused_records_.push_back(new Segment);
  }
  Segment* segment = unused_records_.back();
  unused_records_.pop_back();
  segment->memory = memory;
  segment->address = base_ + first * kAddressGranule;
  segment->bytes = bytes;
  segment->device_index = device_index;
  for (uint64_t granule = first; granule < first + granules; ++granule) {
    table_[granule].store(segment, std::memory_order_release);
  }
  return segment;
}

void AddressSpace::unmap(Segment* segment) {
  const std::lock_guard lock(mutex_);
  const uint64_t first = (segment->address - base_) / kAddressGranule;
  const uint64_t granules =
      (segment->bytes + kAddressGranule - 1) / kAddressGranule;
  for (uint64_t granule = first; granule < first + granules; ++granule) {
    table_[granule].store(nullptr, std::memory_order_release);
  }
  give_range(first, granules);
  unused_records_.push_back(segment);
}

}  // namespace

Segment* map_segment(int device_index, cl_mem memory, uint64_t bytes) {
  return AddressSpace::instance().map(device_index, memory, bytes);
}

void unmap_segment(Segment* segment) {
  AddressSpace::instance().unmap(segment);
}

Segment* find_segment(const void* address) noexcept {
  const AddressSpace* space = AddressSpace::published();
  return space == nullptr ? nullptr
                          : space->find(reinterpret_cast<uint64_t>(address));
}

Location locate(const void* address) noexcept {
  const Segment* segment = find_segment(address);
  if (segment == nullptr) {
    return {};
  }
  return {segment->memory,
          reinterpret_cast<uint64_t>(address) - segment->address,
          segment->device_index};
}

void* adopt_external(int device_index, cl_mem memory, size_t bytes) {
  OPENCL_CHECK(api().clRetainMemObject(memory));
  Segment* segment = nullptr;
  try {
    segment = map_segment(device_index, memory, bytes);
    void* address = reinterpret_cast<void*>(segment->address);
    never_keep_packed(address, bytes);
    return address;
  } catch (...) {
    if (segment != nullptr) {
      unmap_segment(segment);
    }
    log_opencl_error(api().clReleaseMemObject(memory), "clReleaseMemObject");
    throw;
  }
}

void release_external(void* address) {
  Segment* segment = find_segment(address);
  if (segment == nullptr) {
    throw Error("opencl: release_external of an address that is not ours");
  }
  const cl_mem memory = segment->memory;
  end_packed(address);
  unmap_segment(segment);
  OPENCL_CHECK(api().clReleaseMemObject(memory));
}

}  // namespace torch_opencl::runtime
