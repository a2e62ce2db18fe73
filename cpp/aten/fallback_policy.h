// What is said of an op that computes on the CPU.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_opencl::aten {

// Raises for a float tensor that was forgotten on the CPU.
void check_devices(c10::ArrayRef<c10::IValue> arguments);

// Counts a call, and warns or raises NotImplementedError as
// TORCH_OPENCL_FALLBACK asks.
void note_fallback(const c10::OperatorHandle& op,
                   c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_opencl::aten
