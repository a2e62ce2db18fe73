// Sizes that kernels take as ints.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include <cstdint>

namespace torch_opencl::ops {

// Kernels count in blocks, and so to somewhat more than a size.
constexpr int64_t kLargestIntSize = (int64_t{1} << 31) - (1 << 16);

inline int32_t int_size(const char* op, int64_t size) {
  TORCH_CHECK_NOT_IMPLEMENTED(size <= kLargestIntSize,
                              op,
                              ": opencl supports sizes up to ",
                              kLargestIntSize,
                              ", got ",
                              size);
  return static_cast<int32_t>(size);
}

// Of an image (N, C, ...), whose pixels kernels number.
inline void check_pixels(const char* op, const at::TensorBase& image) {
  int_size(op, c10::multiply_integers(image.sizes().slice(2)));
}

}  // namespace torch_opencl::ops
