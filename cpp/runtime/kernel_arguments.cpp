#include "kernel_arguments.h"

#include "error.h"

namespace torch_opencl::runtime {
namespace {

std::string argument_text(cl_kernel kernel, cl_uint index, cl_uint what) {
  size_t size = 0;
  OPENCL_CHECK(
      api().clGetKernelArgInfo(kernel, index, what, 0, nullptr, &size));
  std::string text(size, '\0');
  OPENCL_CHECK(api().clGetKernelArgInfo(
      kernel, index, what, size, text.data(), nullptr));
  return text.c_str();
}

}  // namespace

std::vector<KernelArgument> kernel_arguments(const Kernel& kernel) {
  cl_uint count = 0;
  OPENCL_CHECK(api().clGetKernelInfo(
      kernel.handle, CL_KERNEL_NUM_ARGS, sizeof(count), &count, nullptr));
  std::vector<KernelArgument> arguments;
  for (cl_uint i = 0; i < count; ++i) {
    cl_kernel_arg_address_qualifier qualifier = 0;
    OPENCL_CHECK(api().clGetKernelArgInfo(kernel.handle,
                                          i,
                                          CL_KERNEL_ARG_ADDRESS_QUALIFIER,
                                          sizeof(qualifier),
                                          &qualifier,
                                          nullptr));
    using Kind = KernelArgument::Kind;
    const Kind kind = qualifier == CL_KERNEL_ARG_ADDRESS_PRIVATE ? Kind::kValue
                      : qualifier == CL_KERNEL_ARG_ADDRESS_LOCAL
                          ? Kind::kLocal
                          : Kind::kBuffer;
    arguments.push_back(
        {kind,
         argument_text(kernel.handle, i, CL_KERNEL_ARG_TYPE_NAME),
         argument_text(kernel.handle, i, CL_KERNEL_ARG_NAME)});
  }
  return arguments;
}

cl_mem create_sub_buffer(cl_mem memory, size_t offset) {
  size_t size = 0;
  OPENCL_CHECK(api().clGetMemObjectInfo(
      memory, CL_MEM_SIZE, sizeof(size), &size, nullptr));
  const cl_buffer_region region = {offset, size - offset};
  cl_int code = CL_SUCCESS;
  const cl_mem created = api().clCreateSubBuffer(
      memory, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  if (code != CL_SUCCESS) {
    throw_opencl_error(code, "clCreateSubBuffer", __FILE__, __LINE__);
  }
  return created;
}

void release_memory(cl_mem memory) noexcept {
  log_opencl_error(api().clReleaseMemObject(memory), "clReleaseMemObject");
}

}  // namespace torch_opencl::runtime
