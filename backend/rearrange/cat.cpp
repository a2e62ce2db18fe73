// cat: a strided, converting copy an input, and on GPUs one launch for several
// inputs of one shape.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../float8/float8.h"
#include "../pointwise/pointwise.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/cat_ops.h>

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;

constexpr size_t kMostAtOnce = 4;
constexpr int64_t kMaxCatDimensions = 15;
constexpr PointwiseOp kCopies[kMostAtOnce + 1] = {
    {},
    {},
    {.name = "cat_2",
     .expression = "to0 = from0; to1 = from1;",
     .inputs = "from0 from1",
     .moves = true,
     .outputs = "to0 to1"},
    {.name = "cat_3",
     .expression = "to0 = from0; to1 = from1; to2 = from2;",
     .inputs = "from0 from1 from2",
     .moves = true,
     .outputs = "to0 to1 to2"},
    {.name = "cat_4",
     .expression = "to0 = from0; to1 = from1; to2 = from2; to3 = from3;",
     .inputs = "from0 from1 from2 from3",
     .moves = true,
     .outputs = "to0 to1 to2 to3"}};

using Tensors = c10::SmallVector<const at::Tensor*, 8>;

// Tensors of the same sizes, strides and dtype, which is the output's.
bool copies_at_once(const Tensors& tensors, const at::Tensor& out) {
  const at::Tensor& first = *tensors.front();
  return tensors.size() > 1 && !aten::device_of(out).is_cpu() &&
         !out.is_complex() && first.dim() <= kMaxCatDimensions &&
         std::all_of(
             tensors.begin(), tensors.end(), [&](const at::Tensor* tensor) {
               return tensor->sizes() == first.sizes() &&
                      tensor->strides() == first.strides() &&
                      tensor->scalar_type() == out.scalar_type() &&
                      tensor->device() == out.device() && !tensor->is_neg();
             });
}

// Into the output from `place` on, which moves behind them.
void copy_several(c10::ArrayRef<const at::Tensor*> tensors,
                  const at::Tensor& out,
                  int64_t dim,
                  int64_t& place) {
  const auto take_slice = [&](const at::Tensor& tensor) {
    const int64_t first = place;
    place += tensor.size(dim);
    return out.narrow(dim, first, place - first);
  };
  if (tensors.size() == 1) {
    take_slice(*tensors[0]).copy_(*tensors[0]);
    return;
  }
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .resize_outputs(false);
  for (const at::Tensor* tensor : tensors) {
    config.add_owned_output(as_bytes(take_slice(*tensor)));
  }
  for (const at::Tensor* tensor : tensors) {
    config.add_owned_const_input(as_bytes(*tensor));
  }
  at::TensorIterator iter = config.build();
  pointwise(iter, kCopies[tensors.size()], {});
}

struct cat_out : at::meta::structured_cat {
  void impl(const meta_return_ty& precomputed,
            const at::ITensorListRef& tensors,
            int64_t /*dim*/,
            const at::Tensor& out) {
    Tensors wanted;
    for_each_tensor(tensors, [&](const at::Tensor& tensor) {
      // An empty one may have one dimension, for history's sake.
      if (tensor.dim() != 1 || tensor.size(0) != 0) {
        wanted.push_back(&tensor);
      }
    });
    if (wanted.empty()) {
      return;
    }
    const size_t at_once = copies_at_once(wanted, out) ? kMostAtOnce : 1;
    int64_t place = 0;
    for (size_t i = 0; i < wanted.size(); i += at_once) {
      const size_t count = std::min(at_once, wanted.size() - i);
      copy_several({wanted.data() + i, count}, out, precomputed.dim, place);
    }
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<cat_out, at::_ops::cat_out, Numbers::kRealAndComplex>(m);
}

}  // namespace torch_opencl::ops
