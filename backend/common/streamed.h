// When kernels write past the caches: STREAM of lanes.clh.
#pragma once

#include "../../cpp/aten/launch.h"

namespace torch_opencl::ops {

// True for a float32 result on a CPU that is so large that nothing of it stays
// in a cache for its reader.
inline bool is_streamed(const runtime::Device& device,
                        at::ScalarType dtype,
                        int64_t elements) {
  constexpr int64_t kElements = int64_t{8} << 20;
  return device.is_cpu() && dtype == at::kFloat && elements >= kElements;
}

}  // namespace torch_opencl::ops
