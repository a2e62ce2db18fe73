// Element types as kernels know them. The names are torch's and are pasted
// into OpenCL identifiers (load_float16, storage_bfloat16, ...): see
// backend/common/types.clh.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_opencl::runtime {

#define TORCH_OPENCL_FOR_EACH_DTYPE(_) \
  _(Bool, bool, 1)                     \
  _(UInt8, uint8, 1)                   \
  _(Int8, int8, 1)                     \
  _(UInt16, uint16, 2)                 \
  _(Int16, int16, 2)                   \
  _(UInt32, uint32, 4)                 \
  _(Int32, int32, 4)                   \
  _(UInt64, uint64, 8)                 \
  _(Int64, int64, 8)                   \
  _(Float16, float16, 2)               \
  _(BFloat16, bfloat16, 2)             \
  _(Float32, float32, 4)               \
  _(Float64, float64, 8)               \
  _(Complex32, complex32, 4)           \
  _(Complex64, complex64, 8)           \
  _(Complex128, complex128, 16)

enum class DType : uint8_t {
#define TORCH_OPENCL_ENUMERATOR(name, text, size) k##name,
  TORCH_OPENCL_FOR_EACH_DTYPE(TORCH_OPENCL_ENUMERATOR)
#undef TORCH_OPENCL_ENUMERATOR
};

inline const char* dtype_name(DType dtype) {
  static constexpr const char* names[] = {
#define TORCH_OPENCL_NAME(name, text, size) #text,
      TORCH_OPENCL_FOR_EACH_DTYPE(TORCH_OPENCL_NAME)
#undef TORCH_OPENCL_NAME
  };
  return names[static_cast<int>(dtype)];
}

inline size_t dtype_size(DType dtype) {
  static constexpr size_t sizes[] = {
#define TORCH_OPENCL_SIZE(name, text, size) size,
      TORCH_OPENCL_FOR_EACH_DTYPE(TORCH_OPENCL_SIZE)
#undef TORCH_OPENCL_SIZE
  };
  return sizes[static_cast<int>(dtype)];
}

}  // namespace torch_opencl::runtime
