// torchvision::nms. The schema is torchvision's, or vision.py's where its
// extension cannot load; the registration waits for either.
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "kernel_sources.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/sort.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int kSelectGroup = 256;  // WG_SIZE of nms_groups.cl

void check_boxes(const Tensor& dets, const Tensor& scores) {
  TORCH_CHECK(
      dets.dim() == 2, "boxes should be a 2d tensor, got ", dets.dim(), "D");
  TORCH_CHECK(dets.size(1) == 4,
              "boxes should have 4 elements in dimension 1, got ",
              dets.size(1));
  TORCH_CHECK(scores.dim() == 1,
              "scores should be a 1d tensor, got ",
              scores.dim(),
              "D");
  TORCH_CHECK(dets.size(0) == scores.size(0),
              "boxes and scores should have same number of elements in ",
              "dimension 0, got ",
              dets.size(0),
              " and ",
              scores.size(0));
  check_floating("nms", dets);
}

// The largest float that is not above `threshold`: what is above one is above
// the other. The CPU compares floats with a double.
float floor_to_float(double threshold) {
  const auto nearest = static_cast<float>(threshold);
  return nearest > threshold
             ? std::nextafter(nearest, -std::numeric_limits<float>::infinity())
             : nearest;
}

// Indices of the boxes that stay, by descending score.
Tensor nms(const Tensor& dets, const Tensor& scores, double iou_threshold) {
  check_boxes(dets, scores);
  const int64_t count = dets.size(0);
  if (count == 0) {
    return at::empty({0}, dets.options().dtype(at::kLong));
  }
  const Tensor order = std::get<1>(scores.sort(/*stable=*/true, 0, true));
  const Tensor boxes = dets.contiguous();  // copy: rows of four
  const int64_t columns = (count + 31) / 32;
  const at::TensorOptions integers = dets.options().dtype(at::kInt);
  const Tensor words = at::empty({count, columns}, integers);
  const Tensor removed = at::empty({columns}, integers);
  const Tensor kept = at::empty({count}, dets.options().dtype(at::kByte));
  const auto find_overlaps = [&](auto threshold) {
    launch(dets,
           sources::nms,
           "overlaps",
           {{"DTYPE", dtype_of(boxes)}, {"WG_SIZE", kWorkGroup}},
           range(columns, count, kWorkGroup, 1),
           arg_in(boxes),
           arg_in(order),
           arg(words),
           static_cast<int32_t>(count),
           threshold);
  };
  if (boxes.scalar_type() == at::kDouble) {
    find_overlaps(iou_threshold);
  } else {
    find_overlaps(floor_to_float(iou_threshold));
  }
  if (aten::device_of(dets).is_cpu()) {
    launch(dets,
           sources::nms,
           "select_boxes",
           {{"DTYPE", dtype_of(boxes)}, {"WG_SIZE", 1}},
           range(1, 1),
           arg_in(words),
           arg(removed),
           arg(kept),
           static_cast<int32_t>(count));
  } else {
    launch(dets,
           sources::nms_groups,
           "select_boxes_by_words",
           {},
           range(kSelectGroup, kSelectGroup),
           arg_in(words),
           arg(removed),
           arg(kept),
           static_cast<int32_t>(count));
  }
  return order.masked_select(kept.to(at::kBool));
}

}  // namespace

TORCH_LIBRARY_IMPL(torchvision, PrivateUse1, m) {
  m.impl("nms", TORCH_FN(nms));
}

}  // namespace torch_opencl::ops
