// Errors of kernels as Python sees them.
#include "../runtime/error_record.h"

#include <c10/util/Exception.h>

namespace torch_opencl::device {
namespace {

struct Registration {
  Registration() {
    runtime::set_throw_index_error(
        [](const std::string& text) { TORCH_CHECK_INDEX(false, text); });
  }
} registration;

}  // namespace
}  // namespace torch_opencl::device
