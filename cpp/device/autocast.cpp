// torch.autocast("opencl"): the dispatch key comes without kernels, so ATen's
// own op lists are registered here, as CUDA and XPU do.
#include <ATen/autocast_mode.h>

namespace {

at::Tensor binary_cross_entropy_banned(const at::Tensor&,
                                       const at::Tensor&,
                                       const std::optional<at::Tensor>&,
                                       int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are "
      "unsafe to autocast.\nMany models use a sigmoid layer right before the "
      "binary cross entropy layer.\nIn this case, combine the two layers using "
      "torch.nn.functional.binary_cross_entropy_with_logits\nor "
      "torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and "
      "BCEWithLogits are\nsafe to autocast.");
}

}  // namespace

#define TORCH_OPENCL_LOWER_PRECISION(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TORCH_OPENCL_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TORCH_OPENCL_FP32_SET_OPT_DTYPE(...) \
  KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TORCH_OPENCL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
#define TORCH_OPENCL_DIFFERENT_SIGNATURE(...) \
  KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE(__VA_ARGS__)

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  using namespace at;  // the lists' signatures name ATen types unqualified
  using std::optional;
  AT_FORALL_LOWER_PRECISION_FP(TORCH_OPENCL_LOWER_PRECISION)
  AT_FORALL_FP32(TORCH_OPENCL_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TORCH_OPENCL_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(TORCH_OPENCL_DIFFERENT_SIGNATURE)
  AT_FORALL_PROMOTE(TORCH_OPENCL_PROMOTE)
  m.impl("aten::binary_cross_entropy", &binary_cross_entropy_banned);
}
