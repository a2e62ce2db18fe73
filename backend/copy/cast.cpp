// Casts of elements that follow each other, on CPUs.
#include "cast.h"

#include "../../cpp/aten/launch.h"
#include "../common/integers.h"
#include "../common/non_temporal.h"
#include "kernel_sources.h"

#include <algorithm>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;

namespace {

// A dtype that is copied bit by bit.
at::ScalarType bits_of(int64_t bytes) {
  return bytes == 1   ? at::kByte
         : bytes == 2 ? at::kShort
         : bytes == 4 ? at::kInt
                      : at::kLong;
}

}  // namespace

bool cast_contiguous(at::TensorIteratorBase& iter) {
  constexpr int64_t kMinChunk = 4096;
  constexpr int64_t kMaxChunk = 65536;
  const at::TensorBase& out = iter.tensor_base(0);
  at::ScalarType to = iter.dtype(0);
  at::ScalarType from = iter.dtype(1);
  if (to == from) {
    to = from = bits_of(iter.element_size(0));
  }
  const bool is_beyond_int64 = to == at::kUInt64 && at::isFloatingType(from);
  if (iter.numel() == 0 || !iter.is_contiguous() || is_beyond_int64 ||
      !aten::device_of(out).is_cpu()) {
    return false;
  }
  const int64_t workers =
      int64_t{aten::device_of(out).info().compute_units} * 4;
  const int64_t chunk =
      std::clamp(ceil_div(iter.numel(), workers), kMinChunk, kMaxChunk) / 16 *
      16;
  const int64_t out_bytes = iter.numel() * int64_t{iter.element_size(0)};
  const int64_t in_bytes = iter.numel() * int64_t{iter.element_size(1)};
  // A line of the result at once.
  const int64_t lanes = iter.element_size(0) == 8 ? 8 : 16;
  launch(out,
         sources::cast,
         "cast",
         {{"DTYPE", dtype_of(from)},
          {"OUT_DTYPE", dtype_of(to)},
          {"LANES", lanes},
          {"FROM_BOOL", from == at::kBool},
          {"TO_BOOL", to == at::kBool},
          {"FROM_FLOAT16", from == at::kHalf},
          {"TO_FLOAT16", to == at::kHalf},
          {"FROM_BFLOAT16", from == at::kBFloat16},
          {"TO_BFLOAT16", to == at::kBFloat16},
          {"TRUNCATES", at::isFloatingType(from) && !at::isFloatingType(to)},
          {"INT64_TO_FLOAT", from == at::kLong && at::isFloatingType(to)},
          // What is read beside a narrower result takes the caches, too.
          {"NON_TEMPORAL",
           exceeds_caches(aten::device_of(out),
                          std::max(out_bytes, (out_bytes + in_bytes) / 2))}},
         range(ceil_div(iter.numel(), chunk), 1),
         arg_at(iter.data_ptr(0), to),
         arg_in_at(iter.data_ptr(1), from),
         static_cast<uint64_t>(iter.numel()),
         static_cast<uint64_t>(chunk));
  return true;
}

}  // namespace torch_opencl::ops
