// Page-locked host memory: buffers with CL_MEM_ALLOC_HOST_PTR that stay
// mapped, which is how OpenCL spells memory the device can reach directly.
#include "caching_allocator.h"
#include "error.h"

#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

namespace torch_opencl::runtime {

namespace {

struct PinnedRange {
  cl_mem memory;
  size_t bytes;
  int device_index;
};

struct PinnedRanges {
  std::shared_mutex mutex;
  std::map<uintptr_t, PinnedRange> by_address;
};

// Where the driver refuses the first, it may still take the second.
void release(Queue& queue, cl_mem memory, void* host) noexcept {
  log_opencl_error(api().clEnqueueUnmapMemObject(
                       queue.handle(), memory, host, 0, nullptr, nullptr),
                   "clEnqueueUnmapMemObject");
  log_opencl_error(api().clReleaseMemObject(memory), "clReleaseMemObject");
}

PinnedRanges& pinned_ranges() {
  static auto* ranges = new PinnedRanges;  // outlives every tensor
  return *ranges;
}

// A queue of its own: to map memory waits for what the queue was given before.
Queue& mapping_queue(int device_index) {
  static auto* mutex = new std::mutex;
  static auto* queues = new std::map<int, std::unique_ptr<Queue>>;
  const std::lock_guard lock(*mutex);
  std::unique_ptr<Queue>& queue = (*queues)[device_index];
  if (queue == nullptr) {
    queue = std::make_unique<Queue>(device(device_index), 0, false);
  }
  return *queue;
}

}  // namespace

void* allocate_pinned(int device_index, size_t bytes) {
  Queue& queue = mapping_queue(device_index);
  cl_int code = CL_SUCCESS;
  cl_mem memory =
      api().clCreateBuffer(queue.device().context(),
                           CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                           bytes,
                           nullptr,
                           &code);
  void* host = nullptr;
  if (code == CL_SUCCESS) {
    host = queue.map(memory, bytes, code);
    if (code != CL_SUCCESS) {
      api().clReleaseMemObject(memory);
    }
  }
  if (code != CL_SUCCESS) {
    throw OutOfMemoryError("opencl: cannot allocate " + std::to_string(bytes) +
                           " bytes of page-locked host memory (" +
                           error_name(code) + ")");
  }
  try {
    PinnedRanges& ranges = pinned_ranges();
    const std::unique_lock lock(ranges.mutex);
    ranges.by_address[reinterpret_cast<uintptr_t>(host)] = {
        memory, bytes, device_index};
  } catch (...) {
    release(queue, memory, host);
    throw;
  }
  return host;
}

void free_pinned(void* host) {
  PinnedRange range;
  {
    PinnedRanges& ranges = pinned_ranges();
    const std::unique_lock lock(ranges.mutex);
    const auto found =
        ranges.by_address.find(reinterpret_cast<uintptr_t>(host));
    if (found == ranges.by_address.end()) {
      throw Error("opencl: free of host memory that is not page-locked");
    }
    range = found->second;
    ranges.by_address.erase(found);
  }
  release(mapping_queue(range.device_index), range.memory, host);
}

bool is_pinned(const void* host) noexcept {
  PinnedRanges& ranges = pinned_ranges();
  const std::shared_lock lock(ranges.mutex);
  const auto address = reinterpret_cast<uintptr_t>(host);
  auto range = ranges.by_address.upper_bound(address);
  if (range == ranges.by_address.begin()) {
    return false;
  }
  --range;
  return address - range->first < range->second.bytes;
}

}  // namespace torch_opencl::runtime
