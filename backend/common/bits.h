// Elements that are moved and not computed with.
#pragma once

#include "kernel_text.h"

namespace torch_opencl::ops {

// The unsigned integer of so many bytes: 1, 2, 4 or 8.
inline DType bits_dtype(int64_t element_size) {
  constexpr DType kDTypes[] = {
      DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};
  return kDTypes[__builtin_ctzll(element_size)];
}

// Its name in OpenCL C.
inline const char* bits_name(int64_t element_size) {
  constexpr const char* kNames[] = {"uchar", "ushort", "uint", "ulong"};
  return kNames[__builtin_ctzll(element_size)];
}

}  // namespace torch_opencl::ops
