// 256 registers of a thread on Intel's GPUs instead of 128, for half as many
// threads: for kernels whose sums would be kept in private memory.
#pragma once

#include "../../cpp/aten/launch.h"

namespace torch_opencl::ops {

// An option of Intel's compiler.
constexpr const char* kLargeRegisters = "-cl-intel-256-GRF-per-thread";

// Whether the device's compiler takes that option. The first call for a GPU of
// Intel's, from Arc on, builds a kernel with it.
bool takes_large_registers(const at::TensorBase& on);

}  // namespace torch_opencl::ops
