#include "device_buffer.h"

#include "api.h"
#include "host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace torch_opencl::runtime {
namespace {

constexpr uint64_t kHugePage = uint64_t(2) << 20;

struct Mapping {
  void* address;
  uint64_t bytes;
};

// Parts of mappings that buffers lie in. Pages come when they are touched,
// which may be long after a buffer was made.
class Promised {
 public:
  static Promised& instance() {
    static auto* promised = new Promised;  // buffers may outlive statics
    return *promised;
  }

  void add(void* begin, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    untouched_[begin] = bytes;
  }
  void remove(void* mapping, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = untouched_.lower_bound(mapping);
    if (found != untouched_.end() &&
        found->first < static_cast<char*>(mapping) + bytes) {
      untouched_.erase(found);
    }
  }
  uint64_t bytes() {
    const std::lock_guard lock(mutex_);
    uint64_t total = 0;
    for (const auto& [begin, bytes] : untouched_) {
      total += bytes;
    }
    return total;
  }
  // Bytes without a page. What has all its pages is not looked at again.
  uint64_t untouched_bytes() {
    const std::lock_guard lock(mutex_);
    uint64_t total = 0;
    for (auto part = untouched_.begin(); part != untouched_.end();) {
      const uint64_t bytes = untouched_bytes(part->first, part->second);
      total += bytes;
      part = bytes == 0 ? untouched_.erase(part) : std::next(part);
    }
    return total;
  }

 private:
  static uint64_t untouched_bytes(void* begin, uint64_t bytes) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> is_resident((bytes + page - 1) / page);
    if (mincore(begin, bytes, is_resident.data()) != 0) {
      return bytes;
    }
    return page * static_cast<uint64_t>(std::count_if(
                      is_resident.begin(),
                      is_resident.end(),
                      [](unsigned char value) { return (value & 1) == 0; }));
  }

  std::mutex mutex_;
  std::map<void*, uint64_t> untouched_;
};

void unmap(Mapping* mapping) {
  Promised::instance().remove(mapping->address, mapping->bytes);
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
    Promised::instance().add(aligned, bytes);
    return memory;
  }
#endif
  return create(0, nullptr);
}

namespace {

// A little of the host's memory is for others.
constexpr uint64_t kForOthers = uint64_t{128} << 20;

std::optional<uint64_t> host_memory_for(const Device& device) {
  return (device.info().type & CL_DEVICE_TYPE_CPU) == 0
             ? std::nullopt
             : available_host_memory();
}

}  // namespace

std::optional<uint64_t> available_memory(const Device& device) {
  const auto available = host_memory_for(device);
  if (!available.has_value()) {
    return std::nullopt;
  }
  const uint64_t taken = Promised::instance().untouched_bytes() + kForOthers;
  return *available - std::min(taken, *available);
}

bool has_memory_for(const Device& device, uint64_t bytes) {
  const auto available = host_memory_for(device);
  // Mostly there is enough even if nothing was touched, which is quickly seen.
  return !available.has_value() ||
         Promised::instance().bytes() + kForOthers + bytes <= *available ||
         bytes <= *available_memory(device);
}

}  // namespace torch_opencl::runtime
