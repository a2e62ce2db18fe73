// What a program of a user says about its kernels' parameters, and buffers that
// begin inside others.
#pragma once

#include "device.h"
#include "program_cache.h"

#include <string>
#include <vector>

namespace torch_opencl::runtime {

struct KernelArgument {
  enum class Kind : uint8_t { kBuffer, kLocal, kValue };
  Kind kind;
  std::string type;  // "float*", "int"; as in the source
  std::string name;
};

// A kernel of a source text, and its parameters. Another process finds both on
// disk.
Kernel& kernel_with_arguments(Device& device,
                              const std::string& program,
                              const std::string& source,
                              const std::string& kernel_name,
                              const std::string& options,
                              std::vector<KernelArgument>* arguments);

// `memory` from byte `offset` on, for kernels that take a plain pointer; the
// caller releases it. The offset has to be a multiple of the device's
// address_alignment.
cl_mem create_sub_buffer(cl_mem memory, size_t offset);
void release_memory(cl_mem memory) noexcept;

}  // namespace torch_opencl::runtime
