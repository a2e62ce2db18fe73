// For kernels that report bad indices and divisions by zero: the last arguments
// of a launch.
#pragma once

#include "../runtime/error_record.h"

#include "launch.h"

namespace torch_opencl::aten {

using runtime::ReportAs;

// Of the op `op`, a literal, on the current stream of `on`'s device:
//   launch(out, sources::nll_loss, ..., arg(target), reports(out, "nll_loss"))
inline runtime::ReportArgument reports(const at::TensorBase& on,
                                       const char* op) {
  return {queue_of(on), op};
}

}  // namespace torch_opencl::aten
