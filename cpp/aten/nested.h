// Strided nested tensors (torch.nested) on a device.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

namespace torch_opencl::aten {

// Views and moves by ATen's own functions of the buffer; everything else
// computes on the CPU and is counted as such.
void nested_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace torch_opencl::aten
