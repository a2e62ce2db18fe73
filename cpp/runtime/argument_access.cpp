#include "argument_access.h"

#include "error.h"

namespace torch_opencl::runtime {
namespace {

template <class T>
T argument_info(cl_kernel kernel, cl_uint index, cl_uint what) {
  T value{};
  OPENCL_CHECK(api().clGetKernelArgInfo(
      kernel, index, what, sizeof(value), &value, nullptr));
  return value;
}

}  // namespace

std::string argument_access(cl_kernel kernel) {
  cl_uint count = 0;
  OPENCL_CHECK(api().clGetKernelInfo(
      kernel, CL_KERNEL_NUM_ARGS, sizeof(count), &count, nullptr));
  std::string access(count, '-');
  for (cl_uint i = 0; i < count; ++i) {
    if (argument_info<cl_kernel_arg_address_qualifier>(
            kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER) ==
        CL_KERNEL_ARG_ADDRESS_GLOBAL) {
      const auto type = argument_info<cl_kernel_arg_type_qualifier>(
          kernel, i, CL_KERNEL_ARG_TYPE_QUALIFIER);
      access[i] = (type & CL_KERNEL_ARG_TYPE_CONST) != 0 ? 'r' : 'w';
    }
  }
  return access;
}

void require_access(const Kernel& kernel, cl_uint index, bool is_written) {
  const char taken = index < kernel.access.size() ? kernel.access[index] : '-';
  if (taken == 'r' || (taken == 'w' && is_written)) {
    return;
  }
  throw Error(std::string(kernel.name) + ": argument " + std::to_string(index) +
              (taken == 'w'
                   ? " is bound as a buffer that is only read, and the kernel "
                     "may write it"
                   : " is bound as a buffer, and the kernel takes none there"));
}

}  // namespace torch_opencl::runtime
