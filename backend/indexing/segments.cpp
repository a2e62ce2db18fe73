#include "segments.h"

#include "../../cpp/aten/launch.h"
#include "../common/integers.h"
#include "../sorting/sort.h"
#include "kernel_sources.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

constexpr int kSegmentGroup = 64;  // WG_SIZE of scatter_segments.cl
constexpr int64_t kChunk = 64;     // CHUNK

template <class... Arguments>
void launch_segments(const Segments& s,
                     const char* kernel,
                     int64_t items,
                     const Arguments&... arguments) {
  launch(s.self,
         sources::scatter_segments,
         kernel,
         {{"DTYPE", part_dtype(s.self)},
          {"COMPUTE_IS_COMPLEX", s.self.is_complex()},
          {"COMPUTE_IS_DOUBLE", part_dtype(s.self) == DType::kFloat64},
          {"REDUCE", s.reduce},
          {"INCLUDE_SELF", s.include_self},
          {"HAS_WEIGHTS", s.weights.defined()}},
         range(items, kSegmentGroup),
         arguments...);
}

}  // namespace

runtime::DType part_dtype(const Tensor& tensor) {
  return dtype_of(c10::toRealValueType(tensor.scalar_type()));
}

void reduce_segments(const Segments& s) {
  const int64_t count = s.targets.numel();
  const Tensor order = sorted_order_int32(s.targets, false, count);
  const int64_t chunks = ceil_div(count, kChunk);
  const auto columns = static_cast<int64_t>(s.rows.columns);
  const Tensor fronts = at::empty({chunks, columns}, s.self.options());
  const Tensor backs = at::empty({chunks, columns}, s.self.options());
  launch_segments(s,
                  "scatter_chunks",
                  chunks * columns,
                  arg(s.self),
                  arg(fronts),
                  arg(backs),
                  arg_in(s.targets),
                  arg_in(order),
                  arg_in(s.source),
                  arg_in(s.weights),
                  s.rows,
                  count);
  if (chunks > 1) {
    launch_segments(s,
                    "scatter_join",
                    chunks * columns,
                    arg(s.self),
                    arg_in(fronts),
                    arg_in(backs),
                    arg_in(s.targets),
                    arg_in(order),
                    s.rows,
                    count);
  }
}

PixelTargets empty_targets(const Tensor& image, int64_t count, int64_t rows) {
  return {at::empty({rows, count}, image.options().dtype(at::kInt)),
          at::empty({rows, count}, image.options())};
}

void sum_pixels(const Tensor& image,
                const Tensor& gradient,
                const PixelTargets& targets,
                int64_t row) {
  const auto last = [](const Tensor& tensor) { return tensor.movedim(1, -1); };
  const int64_t channels = image.size(1);
  const Tensor source = at::empty(last(gradient).sizes(), image.options());
  source.copy_(last(gradient));
  const Tensor rows = at::zeros(last(image).sizes(), image.options());
  const Tensor pixels = targets.pixels.narrow(0, row, 1);
  const int64_t shared = pixels.numel() / (gradient.numel() / channels);
  reduce_segments({.self = rows,
                   .targets = pixels,
                   .source = source,
                   .weights = targets.weights[row],
                   .rows = {.columns = static_cast<uint64_t>(channels),
                            .inner = static_cast<uint64_t>(channels),
                            .shared = static_cast<uint64_t>(shared)}});
  last(image).copy_(rows);
}

bool goes_by_pixels(const Tensor& image, int64_t targets) {
  return !aten::device_of(image).is_cpu() && image.numel() > 0 &&
         fits_int32(targets) && fits_int32(image.numel() / image.size(1));
}

}  // namespace torch_opencl::ops
