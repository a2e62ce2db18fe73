// Autocast has decided about an op before its kernel runs: what the kernel
// calls is not cast once more. Kernels that call ops of autocast's lists (mm,
// bmm, linear, sum, pow, ...) by anything but their out variants hold one:
//   const NoAutocast guard;
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torch_opencl::aten {

class NoAutocast {
 public:
  NoAutocast() : guard_(c10::autocast_dispatch_keyset) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace torch_opencl::aten
