// When kernels store non-temporally: NON_TEMPORAL of lanes.clh.
#pragma once

#include "../../cpp/aten/launch.h"

namespace torch_opencl::ops {

// True for a result on a CPU that is so large that nothing of it stays in a
// cache for its reader.
inline bool exceeds_caches(const runtime::Device& device, int64_t bytes) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  return device.is_cpu() && bytes >= kBytes;
}

// NON_TEMPORAL is for float32.
inline bool is_non_temporal(const runtime::Device& device,
                            at::ScalarType dtype,
                            int64_t elements) {
  return dtype == at::kFloat &&
         exceeds_caches(device, elements * int64_t{sizeof(float)});
}

}  // namespace torch_opencl::ops
