// What the forward and the weight's gradient by Winograd's F(4x4, 3x3) share.
#pragma once

#include "../common/lanes.h"
#include "../convolution/chunks.h"
#include "../convolution/convolution.h"
#include "../epilogue/epilogue.h"

namespace torch_opencl::ops {

constexpr int64_t kWinogradTile = 4;
constexpr int64_t kFrequencies = 36;
// Products of float32 are summed in shorter runs than elsewhere: the transforms
// of the sums magnify their rounding.
constexpr int64_t kWinogradSumBlock = 64;

inline int32_t as_int(int64_t value) {
  return static_cast<int32_t>(value);
}

struct Tiling {
  int64_t rows;
  int64_t columns;

  int64_t tiles() const { return rows * columns; }
};
inline Tiling tiling_of(const ConvolutionProblem& p) {
  return {ceil_div(p.output[1], kWinogradTile),
          ceil_div(p.output[2], kWinogradTile)};
}

// A kernel, what it is built with, and the work-items it takes.
struct TileWork {
  const char* kernel;
  aten::Define define;
  aten::NDRange range;
  const EpilogueTarget* target = nullptr;  // of a kernel with an epilogue
};

// A transform of `count` tiles of an image or of an output of p, from the tile,
// or row of tiles, `first` on, between panels of `width`.
template <class... Arguments>
void launch_tiles(const ConvolutionProblem& p,
                  const at::Tensor& image,
                  const runtime::KernelSource& source,
                  const TileWork& work,
                  int64_t width,
                  int64_t first,
                  int64_t count,
                  const Arguments&... arguments) {
  const runtime::Device& device = aten::device_of(image);
  const bool is_cpu = device.is_cpu();
  const Tiling tiling = tiling_of(p);
  launch_with_epilogue(work.target,
                       image,
                       source,
                       work.kernel,
                       {{"DTYPE", aten::dtype_of(image)},
                        {"WIDTH", width},
                        {"LANES", is_cpu ? kLanes : 1},
                        {is_cpu ? "IS_CPU" : "IS_GPU", 1},
                        work.define},
                       work.range,
                       arguments...,
                       as_int(image.size(1)),
                       as_int(first),
                       as_int(count),
                       as_int(tiling.rows),
                       as_int(tiling.columns),
                       as_int(image.size(3)),
                       as_int(image.size(4)),
                       as_int(image.stride(0)),
                       as_int(image.stride(1)),
                       as_int(image.stride(3)),
                       as_int(image.stride(4)));
}

// A matrix for each frequency, in the compute type.
struct FrequencyMatrices {
  at::Tensor values;
  int64_t row_stride;
  int64_t frequency_stride;
};
// Rows have space for a multiple of `width` columns.
FrequencyMatrices empty_frequency_matrices(const at::Tensor& on,
                                           int64_t rows,
                                           int64_t columns,
                                           int64_t width);

}  // namespace torch_opencl::ops
