/* Preloaded by beyond_driver.py: from null_driver(1) on, the calls that an op makes of
   its driver succeed without it. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <dlfcn.h>
#include <string.h>

#define LEFT_OUT(_)                                                                    \
  _(clEnqueueNDRangeKernel,                                                            \
    (cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,                     \
     const size_t *offset, const size_t *global, const size_t *local, cl_uint count,   \
     const cl_event *events, cl_event *event),                                         \
    (queue, kernel, dimensions, offset, global, local, count, events, event))          \
  _(clEnqueueCopyBuffer,                                                               \
    (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset,               \
     size_t to_offset, size_t bytes, cl_uint count, const cl_event *events,            \
     cl_event *event),                                                                 \
    (queue, from, to, from_offset, to_offset, bytes, count, events, event))            \
  _(clEnqueueFillBuffer,                                                               \
    (cl_command_queue queue, cl_mem memory, const void *pattern, size_t pattern_bytes, \
     size_t offset, size_t bytes, cl_uint count, const cl_event *events,               \
     cl_event *event),                                                                 \
    (queue, memory, pattern, pattern_bytes, offset, bytes, count, events, event))      \
  _(clSetKernelArg, (cl_kernel kernel, cl_uint index, size_t bytes, const void *value), \
    (kernel, index, bytes, value))                                                     \
  _(clFlush, (cl_command_queue queue), (queue))

static int is_on;

void null_driver(int on) { is_on = on; }

#define DEFINE(name, parameters, arguments)          \
  static cl_int(*real_##name) parameters;            \
  static cl_int my_##name parameters {               \
    return is_on ? CL_SUCCESS : real_##name arguments; \
  }
LEFT_OUT(DEFINE)

/* The extension asks the loader for its functions first, and only once. */
void *dlsym(void *handle, const char *name) {
  static void *(*next)(void *, const char *);
  const char *versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  for (int i = 0; next == 0 && i < 3; ++i) next = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
#define REPLACE(function, parameters, arguments)              \
  if (real_##function == 0 && strcmp(name, #function) == 0) { \
    real_##function = next(handle, name);                     \
    return my_##function;                                     \
  }
  LEFT_OUT(REPLACE)
  return next(handle, name);
}
