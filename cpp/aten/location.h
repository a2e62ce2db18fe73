// Where the bytes of a tensor are, for copies, which need no alignment.
#pragma once

#include "../runtime/caching_allocator.h"

namespace torch_opencl::aten {

// Throws where a storage has no memory.
runtime::Location location_of(const void* address);

}  // namespace torch_opencl::aten
