/* Preloaded by test_driver_failures.py: OpenCL calls that fail when the test says so. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* Result, name, parameters, arguments, and how the function gives a status back. */
#define FAILING(_)                                                                     \
  _(cl_int, clRetainMemObject, (cl_mem memory), (memory), return failure.code)         \
  _(cl_int, clReleaseMemObject, (cl_mem memory), (memory), return failure.code)        \
  _(cl_int, clSetMemObjectDestructorCallback,                                          \
    (cl_mem memory, void(CL_CALLBACK *notify)(cl_mem, void *), void *data),            \
    (memory, notify, data), return failure.code)                                       \
  _(cl_int, clWaitForEvents, (cl_uint count, const cl_event *events), (count, events), \
    return failure.code)                                                               \
  _(cl_int, clEnqueueMarkerWithWaitList,                                               \
    (cl_command_queue queue, cl_uint count, const cl_event *events, cl_event *event),  \
    (queue, count, events, event), return failure.code)                                \
  _(cl_int, clEnqueueUnmapMemObject,                                                   \
    (cl_command_queue queue, cl_mem memory, void *host, cl_uint count,                 \
     const cl_event *events, cl_event *event),                                         \
    (queue, memory, host, count, events, event), return failure.code)                  \
  _(cl_int, clEnqueueWriteBuffer,                                                      \
    (cl_command_queue queue, cl_mem memory, cl_bool blocking, size_t offset,           \
     size_t bytes, const void *host, cl_uint count, const cl_event *events,            \
     cl_event *event),                                                                 \
    (queue, memory, blocking, offset, bytes, host, count, events, event),              \
    return failure.code)                                                               \
  _(cl_int, clBuildProgram,                                                            \
    (cl_program program, cl_uint count, const cl_device_id *devices,                   \
     const char *options, void(CL_CALLBACK *notify)(cl_program, void *), void *data),  \
    (program, count, devices, options, notify, data), return failure.code)             \
  _(cl_int, clGetProgramBuildInfo,                                                     \
    (cl_program program, cl_device_id device, cl_program_build_info what, size_t size, \
     void *value, size_t *needed),                                                     \
    (program, device, what, size, value, needed),                                      \
    return failure.code != 0 ? failure.code : give_log(size, value, needed))           \
  _(cl_mem, clCreateBuffer,                                                            \
    (cl_context context, cl_mem_flags flags, size_t bytes, void *host, cl_int *code),  \
    (context, flags, bytes, host, code), *code = failure.code; return NULL)            \
  _(cl_mem, clCreateSubBuffer,                                                         \
    (cl_mem memory, cl_mem_flags flags, cl_buffer_create_type type, const void *region, \
     cl_int *code),                                                                    \
    (memory, flags, type, region, code), *code = failure.code; return NULL)            \
  _(void *, clEnqueueMapBuffer,                                                        \
    (cl_command_queue queue, cl_mem memory, cl_bool blocking, cl_map_flags flags,      \
     size_t offset, size_t bytes, cl_uint count, const cl_event *events,               \
     cl_event *event, cl_int *code),                                                   \
    (queue, memory, blocking, flags, offset, bytes, count, events, event, code),       \
    *code = failure.code; return NULL)

static struct {
  char name[64];
  int code, skipped, calls;
} failure;

/* After `skipped` calls of the function, the next `calls` of it fail. */
void fail(const char *name, int code, int skipped, int calls) {
  strncpy(failure.name, name, sizeof(failure.name) - 1);
  failure.code = code;
  failure.skipped = skipped;
  failure.calls = calls;
}

/* What clGetProgramBuildInfo says where it "fails" with CL_SUCCESS. */
static char log_text[256];
void set_log(const char *text) { strncpy(log_text, text, sizeof(log_text) - 1); }

static cl_int give_log(size_t size, void *value, size_t *needed) {
  if (needed != NULL) *needed = strlen(log_text) + 1;
  if (value != NULL) strncpy(value, log_text, size);
  return CL_SUCCESS;
}

static int fails(const char *name) {
  if (failure.calls == 0 || strcmp(failure.name, name) != 0) return 0;
  if (failure.skipped > 0) return failure.skipped--, 0;
  return failure.calls--, 1;
}

/* References to cl_mem that the extension has made or retained and not released. */
static atomic_int references;
int memory_references(void) { return references; }

static void count_references(const char *name, intptr_t result) {
  if (strncmp(name, "clCreate", 8) == 0) references += result != 0;
  if (strcmp(name, "clRetainMemObject") == 0) references += result == CL_SUCCESS;
  if (strcmp(name, "clReleaseMemObject") == 0) references -= result == CL_SUCCESS;
}

#define DEFINE(type, name, parameters, arguments, give_back) \
  static type (*real_##name) parameters;                     \
  static type my_##name parameters {                         \
    if (fails(#name)) {                                      \
      give_back;                                             \
    }                                                        \
    type result = real_##name arguments;                     \
    count_references(#name, (intptr_t)result);               \
    return result;                                           \
  }
FAILING(DEFINE)

/* Of buffers: nothing else maps as much at once. */
static const size_t large_mapping = 32 << 20;

void *mmap(void *address, size_t bytes, int access, int flags, int file, off_t offset) {
  static void *(*next)(void *, size_t, int, int, int, off_t);
  if (next == 0) next = dlsym(RTLD_NEXT, "mmap");
  if (bytes > large_mapping && fails("mmap")) return MAP_FAILED;
  return next(address, bytes, access, flags, file, offset);
}

/* The extension asks the loader for its functions first, and only once. */
void *dlsym(void *handle, const char *name) {
  static void *(*next)(void *, const char *);
  const char *versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  for (int i = 0; next == 0 && i < 3; ++i) next = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
#define REPLACE(type, function, parameters, arguments, give_back) \
  if (real_##function == 0 && strcmp(name, #function) == 0) {     \
    real_##function = next(handle, name);                         \
    return my_##function;                                         \
  }
  FAILING(REPLACE)
  return next(handle, name);
}
