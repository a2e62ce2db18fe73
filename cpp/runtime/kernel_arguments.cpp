#include "kernel_arguments.h"

#include "config.h"
#include "disk_cache.h"
#include "error.h"

#include <sstream>

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

// Of a program that was built with kArgumentOption.
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

// A line of a letter and the type, and one of the name, for each.
std::string to_note(const std::vector<KernelArgument>& arguments) {
  std::string text;
  for (const KernelArgument& argument : arguments) {
    text += "blv"[static_cast<size_t>(argument.kind)];
    text += argument.type + "\n" + argument.name + "\n";
  }
  return text;
}

std::vector<KernelArgument> from_note(const std::string& text) {
  std::vector<KernelArgument> arguments;
  std::istringstream lines(text);
  std::string type;
  std::string name;
  while (std::getline(lines, type) && std::getline(lines, name)) {
    const size_t kind = std::string("blv").find(type[0]);
    arguments.push_back(
        {static_cast<KernelArgument::Kind>(kind), type.substr(1), name});
  }
  return arguments;
}

}  // namespace

Kernel& kernel_with_arguments(Device& device,
                              const std::string& program,
                              const std::string& source,
                              const std::string& kernel_name,
                              const std::string& options,
                              std::vector<KernelArgument>* arguments) {
  const std::string key = "parameters of " + kernel_name + "\n" +
                          identity_of(device.info()) + "\n" + options + "\n" +
                          source;
  // One for all calls: it counts stores, to scan the directory now and then.
  static DiskCache notes(default_cache_directory(),
                         config().cache_size_mib << 20);
  bool damaged = false;
  if (const auto note = notes.load(key, &damaged)) {
    *arguments = from_note(std::string(note->begin(), note->end()));
    return device.programs().get_generated(
        program, source, kernel_name, options);
  }
  const std::string asking =
      options.empty() ? kArgumentOption : kArgumentOption + (" " + options);
  Kernel& kernel =
      device.programs().get_generated(program, source, kernel_name, asking);
  *arguments = kernel_arguments(kernel);
  const std::string text = to_note(*arguments);
  notes.store(key, {text.begin(), text.end()});
  return kernel;
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
