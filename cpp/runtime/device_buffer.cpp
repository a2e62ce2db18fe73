#include "device_buffer.h"

#include "api.h"

#include <sys/mman.h>

#include <memory>

namespace torch_opencl::runtime {
namespace {

constexpr uint64_t kHugePage = uint64_t(2) << 20;

struct Mapping {
  void* address;
  uint64_t bytes;
};

void unmap(Mapping* mapping) {
  munmap(mapping->address, mapping->bytes);
  delete mapping;
}

}  // namespace

cl_mem create_buffer(Device& device, uint64_t bytes, cl_int* code) {
  const auto create = [&](cl_mem_flags flags, void* host) {
    return api().clCreateBuffer(
        device.context(), CL_MEM_READ_WRITE | flags, bytes, host, code);
  };
#ifdef MADV_HUGEPAGE
  if (device.is_cpu() && bytes >= kHugePage) {
    // A mapping begins at a page of its own choosing: the first huge page in it
    // is less than one away.
    const uint64_t mapped = bytes + kHugePage;
    void* address = mmap(nullptr,
                         mapped,
                         PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                         -1,
                         0);
    if (address == MAP_FAILED) {
      *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
      return nullptr;
    }
    const auto begin = reinterpret_cast<uintptr_t>(address);
    void* aligned = reinterpret_cast<void*>((begin + kHugePage - 1) /
                                            kHugePage * kHugePage);
    // Advice: without huge pages everything works as well.
    madvise(aligned, bytes, MADV_HUGEPAGE);
    auto mapping = std::make_unique<Mapping>(Mapping{address, mapped});
    cl_mem memory = create(CL_MEM_USE_HOST_PTR, aligned);
    if (memory == nullptr) {
      munmap(address, mapped);
      return nullptr;
    }
    // Commands in flight keep the memory object, and so the mapping, alive.
    *code = api().clSetMemObjectDestructorCallback(
        memory,
        [](cl_mem, void* data) { unmap(static_cast<Mapping*>(data)); },
        mapping.get());
    if (*code != CL_SUCCESS) {
      api().clReleaseMemObject(memory);
      munmap(address, mapped);
      return nullptr;
    }
    mapping.release();
    return memory;
  }
#endif
  return create(0, nullptr);
}

}  // namespace torch_opencl::runtime
