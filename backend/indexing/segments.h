// Sums, or other reductions, of rows that go to rows of a result, for GPUs:
// what goes where is sorted once, and the rows of one target are reduced in a
// fixed order.
#pragma once

#include "../../cpp/runtime/dtype.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace torch_opencl::ops {

// rows_t of scatter_segments.cl: how the elements of a row lie. Single elements
// are rows of one column.
struct SegmentRows {
  uint64_t columns = 1;
  uint64_t inner = 1;
  uint64_t self_outer = 0;
  uint64_t source_outer = 0;
  uint64_t shared = 1;  // targets that take the same row of the source
};

struct Segments {
  at::Tensor self;     // contiguous, changed in place
  at::Tensor targets;  // int32 (1, count): the rows of `self`
  at::Tensor source;   // contiguous, of the dtype of `self`
  at::Tensor weights;  // by target, of that dtype; undefined: ones
  SegmentRows rows;
  int reduce = 0;  // REDUCE of scatter_combine.clh
  bool include_self = true;
};

void reduce_segments(const Segments& segments);

// The pixels of an image that gradients go to, and by which weights. A row is
// for a sum_pixels() of its own.
struct PixelTargets {
  at::Tensor pixels;   // int32 (rows, count)
  at::Tensor weights;  // of the dtype of the image
};

PixelTargets empty_targets(const at::Tensor& image,
                           int64_t count,
                           int64_t rows = 1);

// image = sums of gradients of pixels, which are rows of their channels. Of
// position p of `gradient`, whose dimension 1 are channels as the image's, the
// n targets from p * n on are its own.
void sum_pixels(const at::Tensor& image,
                const at::Tensor& gradient,
                const PixelTargets& targets,
                int64_t row = 0);

// Whether a GPU takes sum_pixels() for that many targets.
bool goes_by_pixels(const at::Tensor& image, int64_t targets);

// The dtype of a tensor, or of the parts of a complex one.
runtime::DType part_dtype(const at::Tensor& tensor);

}  // namespace torch_opencl::ops
