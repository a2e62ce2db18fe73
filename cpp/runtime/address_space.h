// One reservation of virtual addresses for the process, cut into granules;
// every buffer gets a range of its own. A table granule -> segment makes the
// way back from an address lock-free and O(1).
#pragma once

#include "api.h"

#include <atomic>
#include <cstdint>

namespace torch_opencl::runtime {

struct Segment {
  cl_mem memory = nullptr;
  uint64_t address = 0;
  uint64_t bytes = 0;
  int device_index = -1;
  std::atomic<int32_t> ranges_with_packed{0};  // packed_weight_cache.h
};

constexpr uint64_t kAddressGranule = uint64_t{2} << 20;

// Gives `memory` an address range. The segment's record stays readable for
// the life of the process, so that a racing lookup never reads freed memory.
Segment* map_segment(int device_index, cl_mem memory, uint64_t bytes);
// The range may be handed out again at once; the cl_mem is the caller's.
void unmap_segment(Segment* segment);

// Null when the address is not ours.
Segment* find_segment(const void* address) noexcept;

}  // namespace torch_opencl::runtime
