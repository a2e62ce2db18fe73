// An OpenCL library without a device: it records programs and launches with
// their arguments, and executes nothing.
//
// Built as libOpenCL.so.1 and put first on the library path, it stands in for
// the loader and for a GPU. Commands complete at once, buffers
// have no memory, and reads give zeros: shapes are right, values are not. So a
// step of a full-size network takes as long as its host code. Lines of JSON go
// to $RECORDER_FILE, or to the function that recorder_call_back() was given.
#include "recorder.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace {

std::mutex mutex;
std::set<cl_mem> buffers;  // those alive
std::map<std::string, int64_t> programs;
int64_t buffer_count = 0;
void (*callback)(const char*) = nullptr;

FILE* file() {
  static FILE* opened = [] {
    const char* path = std::getenv("RECORDER_FILE");
    FILE* result = std::fopen(path != nullptr ? path : "/dev/null", "w");
    return result != nullptr ? result : std::fopen("/dev/null", "w");
  }();
  return opened;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += static_cast<char>(c);
    } else if (c < 0x20 || c >= 0x7f) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      result += code;
    } else {
      result += static_cast<char>(c);
    }
  }
  return result + "\"";
}

// Never called with the mutex: the function may wait for an interpreter.
void write(const std::string& line) {
  if (callback != nullptr) {
    callback(line.c_str());
  } else {
    std::fprintf(file(), "%s\n", line.c_str());
  }
}

void write_command(const char* name, size_t bytes) {
  write(std::string("{\"command\": \"") + name +
        "\", \"bytes\": " + std::to_string(bytes) + "}");
}

std::string sizes(cl_uint dimensions, const size_t* values) {
  std::string result = "[";
  for (cl_uint i = 0; i < 3; ++i) {
    const size_t value = values != nullptr && i < dimensions ? values[i] : 1;
    result += (i > 0 ? ", " : "") + std::to_string(value);
  }
  return result + "]";
}

std::string argument_text(const std::string& bytes) {
  cl_mem memory = nullptr;
  if (bytes.size() == sizeof(memory)) {
    std::memcpy(&memory, bytes.data(), sizeof(memory));
    if (buffers.count(memory) != 0) {
      return "{\"buffer\": " + std::to_string(memory->number) + "}";
    }
  }
  std::string result = "{\"hex\": \"";
  for (const unsigned char c : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", c);
    result += digits;
  }
  return result + "\"}";
}

}  // namespace

extern "C" {

void recorder_call_back(void (*function)(const char*)) {
  callback = function;
}

cl_mem clCreateBuffer(
    cl_context, cl_mem_flags flags, size_t bytes, void* host, cl_int* code) {
  if (bytes > setting("RECORDER_LARGEST_BUFFER", SIZE_MAX)) {
    set(code, CL_INVALID_BUFFER_SIZE);
    return nullptr;
  }
  std::unique_lock lock(mutex);
  set(code);
  auto* memory = new _cl_mem{buffer_count++, bytes, 1, host};
  buffers.insert(memory);
  lock.unlock();
  const bool is_host = (flags & CL_MEM_ALLOC_HOST_PTR) != 0;
  write("{\"new buffer\": " + std::to_string(memory->number) +
        ", \"bytes\": " + std::to_string(bytes) +
        ", \"host\": " + (is_host ? "true" : "false") + "}");
  return memory;
}
cl_mem clCreateSubBuffer(cl_mem parent,
                         cl_mem_flags,
                         cl_buffer_create_type,
                         const void* region,
                         cl_int* code) {
  const auto* part = static_cast<const cl_buffer_region*>(region);
  const std::lock_guard lock(mutex);
  set(code);
  auto* memory = new _cl_mem{parent->number, part->size, 1, nullptr};
  buffers.insert(memory);
  return memory;
}
cl_int clRetainMemObject(cl_mem memory) {
  const std::lock_guard lock(mutex);
  ++memory->references;
  return CL_SUCCESS;
}
cl_int clReleaseMemObject(cl_mem memory) {
  const std::lock_guard lock(mutex);
  if (--memory->references == 0) {
    buffers.erase(memory);
    delete memory;
  }
  return CL_SUCCESS;
}
cl_int clSetMemObjectDestructorCallback(cl_mem,
                                        void(CL_CALLBACK*)(cl_mem, void*),
                                        void*) {
  return CL_SUCCESS;
}
cl_int clGetMemObjectInfo(
    cl_mem memory, cl_mem_info what, size_t space, void* to, size_t* needed) {
  switch (what) {
    case CL_MEM_SIZE:
      return give_value<size_t>(memory->bytes, space, to, needed);
    case CL_MEM_CONTEXT:
      return give_value<cl_context>(&context, space, to, needed);
    case CL_MEM_TYPE:
      return give_value<cl_mem_object_type>(
          CL_MEM_OBJECT_BUFFER, space, to, needed);
    default:
      return give_value<cl_ulong>(0, space, to, needed);
  }
}

cl_program clCreateProgramWithSource(cl_context,
                                     cl_uint count,
                                     const char** texts,
                                     const size_t* lengths,
                                     cl_int* code) {
  set(code);
  auto* program = new _cl_program{-1, "", ""};
  for (cl_uint i = 0; i < count; ++i) {
    if (lengths != nullptr && lengths[i] != 0) {
      program->text.append(texts[i], lengths[i]);
    } else {
      program->text += texts[i];
    }
  }
  return program;
}
cl_program clCreateProgramWithBinary(cl_context,
                                     cl_uint,
                                     const cl_device_id*,
                                     const size_t*,
                                     const unsigned char**,
                                     cl_int*,
                                     cl_int* code) {
  set(code, CL_INVALID_BINARY);
  return nullptr;
}
cl_int clBuildProgram(cl_program program,
                      cl_uint,
                      const cl_device_id*,
                      const char* options,
                      void(CL_CALLBACK*)(cl_program, void*),
                      void*) {
  std::unique_lock lock(mutex);
  program->options = options != nullptr ? options : "";
  const std::string key = program->options + "\n" + program->text;
  const auto [found, is_new] =
      programs.emplace(key, static_cast<int64_t>(programs.size()));
  program->number = found->second;
  lock.unlock();
  if (is_new) {
    write("{\"program\": " + std::to_string(program->number) +
          ", \"options\": " + quoted(program->options) +
          ", \"text\": " + quoted(program->text) + "}");
  }
  return CL_SUCCESS;
}
cl_int clGetProgramBuildInfo(cl_program,
                             cl_device_id,
                             cl_program_build_info what,
                             size_t space,
                             void* to,
                             size_t* needed) {
  if (what == CL_PROGRAM_BUILD_STATUS) {
    return give_value<cl_build_status>(CL_BUILD_SUCCESS, space, to, needed);
  }
  return give_text("", space, to, needed);
}
cl_int clGetProgramInfo(
    cl_program, cl_program_info what, size_t space, void* to, size_t* needed) {
  if (what == CL_PROGRAM_DEVICES) {
    return give_value<cl_device_id>(&device, space, to, needed);
  }
  if (what == CL_PROGRAM_CONTEXT) {
    return give_value<cl_context>(&context, space, to, needed);
  }
  if (what == CL_PROGRAM_NUM_DEVICES) {
    return give_value<cl_uint>(1, space, to, needed);
  }
  if (what == CL_PROGRAM_BINARIES) {
    return CL_SUCCESS;  // none, of the size below
  }
  return give_value<size_t>(0, space, to, needed);
}
cl_int clRetainProgram(cl_program) {
  return CL_SUCCESS;
}
cl_int clReleaseProgram(cl_program) {
  return CL_SUCCESS;
}

cl_kernel clCreateKernel(cl_program program, const char* name, cl_int* code) {
  set(code);
  return new _cl_kernel{program, name, {}};
}
cl_int clReleaseKernel(cl_kernel) {
  return CL_SUCCESS;
}
cl_int clGetKernelInfo(cl_kernel kernel,
                       cl_kernel_info what,
                       size_t space,
                       void* to,
                       size_t* needed) {
  if (what == CL_KERNEL_FUNCTION_NAME) {
    return give_text(kernel->name, space, to, needed);
  }
  return CL_INVALID_VALUE;
}
cl_int clGetKernelArgInfo(
    cl_kernel, cl_uint, cl_kernel_arg_info, size_t, void*, size_t*) {
  return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
}
cl_int clGetKernelWorkGroupInfo(cl_kernel,
                                cl_device_id,
                                cl_kernel_work_group_info what,
                                size_t space,
                                void* to,
                                size_t* needed) {
  switch (what) {
    case CL_KERNEL_WORK_GROUP_SIZE:
      return give_value<size_t>(
          setting("RECORDER_GROUP_SIZE", 256), space, to, needed);
    case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
      return give_value<size_t>(32, space, to, needed);
    case CL_KERNEL_COMPILE_WORK_GROUP_SIZE: {
      const size_t none[3] = {0, 0, 0};
      return give(none, sizeof(none), space, to, needed);
    }
    default:
      return give_value<cl_ulong>(0, space, to, needed);
  }
}
cl_int clSetKernelArg(cl_kernel kernel,
                      cl_uint index,
                      size_t bytes,
                      const void* value) {
  const std::lock_guard lock(mutex);
  kernel->arguments[index] =
      value != nullptr ? std::string(static_cast<const char*>(value), bytes)
                       : std::string();
  return CL_SUCCESS;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue,
                              cl_kernel kernel,
                              cl_uint dimensions,
                              const size_t*,
                              const size_t* global,
                              const size_t* local,
                              cl_uint,
                              const cl_event*,
                              cl_event* event) {
  std::unique_lock lock(mutex);
  std::string line = "{\"launch\": " + quoted(kernel->name) +
                     ", \"of\": " + std::to_string(kernel->program->number) +
                     ", \"global\": " + sizes(dimensions, global) +
                     ", \"local\": " + sizes(dimensions, local) +
                     ", \"arguments\": [";
  for (const auto& [index, bytes] : kernel->arguments) {
    line += (index > 0 ? ", " : "") + argument_text(bytes);
  }
  lock.unlock();
  write(line + (queue->profiles ? "], \"is_profiled\": true}" : "]}"));
  set_event(event);
  return CL_SUCCESS;
}
cl_int clEnqueueCopyBuffer(cl_command_queue,
                           cl_mem,
                           cl_mem,
                           size_t,
                           size_t,
                           size_t bytes,
                           cl_uint,
                           const cl_event*,
                           cl_event* event) {
  write_command("copy", bytes);
  set_event(event);
  return CL_SUCCESS;
}
cl_int clEnqueueFillBuffer(cl_command_queue,
                           cl_mem,
                           const void*,
                           size_t,
                           size_t,
                           size_t bytes,
                           cl_uint,
                           const cl_event*,
                           cl_event* event) {
  write_command("fill", bytes);
  set_event(event);
  return CL_SUCCESS;
}
cl_int clEnqueueReadBuffer(cl_command_queue,
                           cl_mem,
                           cl_bool,
                           size_t,
                           size_t bytes,
                           void* host,
                           cl_uint,
                           const cl_event*,
                           cl_event* event) {
  std::memset(host, 0, bytes);
  write_command("read", bytes);
  set_event(event);
  return CL_SUCCESS;
}
cl_int clEnqueueWriteBuffer(cl_command_queue,
                            cl_mem,
                            cl_bool,
                            size_t,
                            size_t bytes,
                            const void*,
                            cl_uint,
                            const cl_event*,
                            cl_event* event) {
  write_command("write", bytes);
  set_event(event);
  return CL_SUCCESS;
}
cl_int clFlush(cl_command_queue) {
  write("{\"flush\": true}");
  return CL_SUCCESS;
}
void* clEnqueueMapBuffer(cl_command_queue,
                         cl_mem memory,
                         cl_bool,
                         cl_map_flags,
                         size_t offset,
                         size_t,
                         cl_uint,
                         const cl_event*,
                         cl_event* event,
                         cl_int* code) {
  const std::lock_guard lock(mutex);
  if (memory->host == nullptr) {
    memory->host = std::calloc(1, memory->bytes);
  }
  set(code, memory->host != nullptr ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY);
  set_event(event);
  return static_cast<char*>(memory->host) + offset;
}
cl_int clEnqueueUnmapMemObject(cl_command_queue,
                               cl_mem,
                               void*,
                               cl_uint,
                               const cl_event*,
                               cl_event* event) {
  set_event(event);
  return CL_SUCCESS;
}
}  // extern "C"
