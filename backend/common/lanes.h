// The lane count of kernels for CPUs: LANES of lanes.clh there.
#pragma once

namespace torch_opencl::ops {

inline constexpr int kLanes = 16;

}  // namespace torch_opencl::ops
