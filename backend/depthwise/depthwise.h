// What the sums and the weight's gradient of depthwise convolutions share.
#pragma once

#include "../common/lanes.h"
#include "../convolution/convolution.h"

#include <algorithm>

namespace torch_opencl::ops {

// Of depthwise.clh.
constexpr int64_t kMaxFilterSize = 64;
constexpr int64_t kSpan = 512;
constexpr int64_t kGroupSize = 64;

constexpr int64_t kRowsAtOnce = 8;         // of an output, by one work-item
constexpr int64_t kElementsAtOnce = 1568;  // and at least so many elements
constexpr int64_t kFactors = 4608;         // of a weight, by one work-item
// Pixels of more channels are too far apart for processors to guess, and images
// of more bytes come from memory.
constexpr int64_t kNearChannels = 64;
constexpr size_t kFarBytes = size_t(16) << 20;
constexpr int64_t kPlanePixels = 1024;  // of depthwise_planes.cl
constexpr int64_t kShortRow = 12;       // vectors along one are mostly idle
constexpr int64_t kItems = 8;           // a core
constexpr int64_t kMaxParts = 64;       // of the positions a weight sums over
constexpr int64_t kMaxSharing = 4;      // beyond, matrix products do better

using Vector2 = std::array<int32_t, 2>;

inline Vector2 plane(const Spatial& spatial) {
  return {static_cast<int32_t>(spatial[1]), static_cast<int32_t>(spatial[2])};
}

inline Vector2 plane_of(const at::Tensor& t) {
  return {static_cast<int32_t>(t.size(3)), static_cast<int32_t>(t.size(4))};
}

inline Vector4 strides(const at::Tensor& t) {
  return {static_cast<int32_t>(t.stride(0)),
          static_cast<int32_t>(t.stride(1)),
          static_cast<int32_t>(t.stride(3)),
          static_cast<int32_t>(t.stride(4))};
}

// Side of the kernels that are built in.
inline int64_t built_in_kernel(const ConvolutionProblem& p) {
  return p.kernel[1] == 3 && p.kernel[2] == 3 ? 3 : 0;
}

inline bool is_channels_last(const at::Tensor& a, const at::Tensor& b) {
  return a.size(1) > 1 && a.stride(1) == 1 && b.stride(1) == 1;
}

inline int64_t rows_of_item(int64_t columns) {
  return std::max(kRowsAtOnce, ceil_div(kElementsAtOnce, columns));
}

inline bool has_dense_planes(const at::Tensor& t) {
  return t.stride(4) == 1 && t.stride(3) == t.size(4);
}

// The offset of the first filter element, the strides of output channels, rows
// and columns.
inline Vector4 weight_strides(const ConvolutionProblem& p,
                              const at::Tensor& weight,
                              bool rotates_filter) {
  const int64_t last_element = (p.kernel[1] - 1) * weight.stride(3) +
                               (p.kernel[2] - 1) * weight.stride(4);
  const int64_t direction = rotates_filter ? -1 : 1;
  return {static_cast<int32_t>(rotates_filter ? last_element : 0),
          static_cast<int32_t>(weight.stride(0)),
          static_cast<int32_t>(direction * weight.stride(3)),
          static_cast<int32_t>(direction * weight.stride(4))};
}

}  // namespace torch_opencl::ops
