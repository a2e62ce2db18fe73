// Pieces of generated kernels that the pointwise and reduction engines share.
#pragma once

#include "../../cpp/aten/launch.h"

#include <ATen/TensorIterator.h>
#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <string>
#include <vector>

// All that a number on the host may be, for AT_DISPATCH_V2.
#define NUMBER_TYPES                                                \
  at::kBool, at::kHalf, at::kBFloat16, AT_EXPAND(AT_COMPLEX_TYPES), \
      AT_EXPAND(AT_FLOATING_TYPES), AT_EXPAND(AT_INTEGRAL_TYPES_V2)

namespace torch_opencl::ops {

using runtime::DType;

// types.clh over the compute dtype, and math.clh when `math` is asked for; of
// complex dtypes over the dtype of their parts, and complex.clh.
// value_t is what an expression computes: compute_t, or a vector of kValueLanes
// of them with `lanes`, for which lanes.clh is there too.
std::string preamble(DType compute, bool math, bool lanes = false);
constexpr int kValueLanes = 16;

// "(compute_t)load_float16(in0, i)"
std::string load_text(DType dtype,
                      const std::string& pointer,
                      const std::string& index,
                      const std::string& type = "compute_t");
// The same of an operand as a number of a complex `compute`.
std::string load_complex_text(DType dtype,
                              DType compute,
                              const std::string& pointer,
                              const std::string& index);
// "store_bool(out0, i, (value) != 0)": the conversions of c10::convert.
std::string store_text(DType dtype,
                       DType compute,
                       const std::string& pointer,
                       const std::string& index,
                       const std::string& value);

// Ahead of a loop over elements. An operand that is the output in place looks
// to compilers like memory that iterations share; other overlap torch has
// refused.
constexpr const char* kIndependent =
    "#pragma clang loop vectorize(assume_safety)\n";

// The same of vectors: kValueLanes elements, of which those from `count` on
// repeat the last one and are not stored. Of floating dtypes, computed in
// float.
std::string load_lanes_text(DType dtype,
                            const std::string& pointer,
                            const std::string& index,
                            const std::string& count);
std::string store_lanes_text(DType dtype,
                             const std::string& pointer,
                             const std::string& index,
                             const std::string& count,
                             const std::string& value);
bool has_lanes(DType dtype);

// The value of a number or of a 0-dim CPU operand as a kernel argument of
// compute type.
struct ScalarArgument {
  alignas(16) std::array<unsigned char, 16> bytes;
  size_t size;
};
ScalarArgument scalar_argument(const at::Scalar& value, at::ScalarType compute);
// Lets launch() take one.
inline void bind_argument(cl_kernel kernel,
                          cl_uint& index,
                          const ScalarArgument& value) {
  runtime::bind_bytes(kernel, index, value.bytes.data(), value.size);
}
// The number as a value of `type`; raises where that does not hold it.
at::Scalar checked_scalar(const at::Scalar& value, at::ScalarType type);
at::Scalar cpu_scalar_value(const at::TensorIteratorBase& iter, int operand);

// Kernels take the sizes and each operand's strides as one 16-component vector.
constexpr int kMaxDimensions = 16;
using Dimensions = std::array<int32_t, kMaxDimensions>;
// Throws where an iterator of `op` has more.
void check_dimensions(const char* op, int64_t dimensions);
// Component of a 16-vector: 11 -> ".sb"
std::string component(int dimension);

// An offset variable that follows a strides vector.
struct Walk {
  std::string offset;
  std::string strides;
};
// Declares the offsets (index_t) and splits `linear` (count_t) over the
// dimensions first..dimensions-1 of `sizes` into them.
std::string offsets_text(const std::vector<Walk>& walks,
                         const std::string& sizes,
                         int first,
                         int dimensions);

bool is_floating(DType dtype);
bool is_complex(DType dtype);
inline bool is_half(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

// Build options for text of users: 0.5 is a float where nothing is float64, so
// that devices without float64 take it.
std::string literal_options(c10::ArrayRef<DType> dtypes);

// Binds arguments one after the other and launches; use within a lock on
// kernel.mutex.
class ArgumentBinder {
 public:
  explicit ArgumentBinder(runtime::Kernel& kernel) : kernel_(kernel) {}
  template <class T>
  void add(const T& value) {
    using runtime::bind_argument;
    bind_argument(kernel_.handle, index_, value);
  }
  void add(const runtime::BufferView& view) {
    runtime::check_access(kernel_, index_, view);
    runtime::bind_argument(kernel_.handle, index_, view);
    if (view.written != nullptr) {
      written_.push_back(view.written);
    }
  }
  void launch(runtime::Queue& queue, const runtime::NDRange& range) {
    queue.launch(kernel_, range);
    for (const void* address : written_) {
      queue.wrote(address);
    }
  }

 private:
  runtime::Kernel& kernel_;
  cl_uint index_ = 0;
  c10::SmallVector<const void*, 4> written_;
};

// "self other" -> {"self", "other"}
std::vector<std::string> split_names(const char* names);

}  // namespace torch_opencl::ops
