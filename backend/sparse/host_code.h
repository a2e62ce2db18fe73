// ATen's host code of sparse ops, which PyTorch shares between its CPU and its
// CUDA backend: the CPU's kernel, called with tensors of the device.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>
#include <string>

namespace torch_opencl::ops {

// Of the first argument that has one.
std::optional<at::Device> device_of_arguments(const c10::OperatorHandle& op,
                                              const torch::jit::Stack& stack);

// CUDA's kernels set the device before they call the shared code, CPU's have
// none to set.
template <c10::DispatchKey kKey>
void run_shared(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::OptionalDeviceGuard guard(device_of_arguments(op, *stack));
  op.redispatchBoxed(c10::DispatchKeySet(kKey), stack);
}

// Registers the CPU's kernel of the key kKey for `name`.
template <c10::DispatchKey kKey>
void share(torch::Library& m, const std::string& name) {
  m.impl(name.c_str(),
         torch::CppFunction::makeFromBoxedFunction<&run_shared<kKey>>());
}

// Of `unary` with their in-place and out= forms, and of `others`.
template <c10::DispatchKey kKey, class Unary, class Others>
void share_all(torch::Library& m, const Unary& unary, const Others& others) {
  for (const std::string name : unary) {
    share<kKey>(m, name);
    share<kKey>(m, name + "_");
    share<kKey>(m, name + ".out");
  }
  for (const char* name : others) {
    share<kKey>(m, name);
  }
}

}  // namespace torch_opencl::ops
