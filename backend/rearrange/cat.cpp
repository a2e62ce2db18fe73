// cat: one strided, converting copy an input.
#include "../../cpp/aten/structured.h"

#include <ATen/ops/cat_meta.h>
#include <ATen/ops/cat_ops.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;

struct cat_out : at::meta::structured_cat {
  void impl(const meta_return_ty& precomputed,
            const at::ITensorListRef& tensors,
            int64_t /*dim*/,
            const at::Tensor& out) {
    int64_t first = 0;
    for (const at::Tensor& tensor : tensors) {
      if (tensor.dim() == 1 && tensor.size(0) == 0) {
        continue;  // of any rank, for history's sake
      }
      const int64_t count = tensor.size(precomputed.dim);
      out.narrow(precomputed.dim, first, count).copy_(tensor);
      first += count;
    }
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<cat_out, at::_ops::cat_out, Numbers::kRealAndComplex>(m);
}

}  // namespace torch_opencl::ops
