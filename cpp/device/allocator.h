// The allocator of opencl tensors as c10 sees it.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>

#include <cstdint>

namespace torch_opencl::device {

// Allocates on the current device and stream; never destroyed, because
// tensors may outlive static destructors.
c10::DeviceAllocator* allocator();

// The same on the device `device_index`, for storages: a copy-on-write one asks
// it for memory, whichever the current device is.
c10::Allocator* storage_allocator(int device_index);

// True where the storage alone has a block of the allocator. Other storages may
// have the same bytes where it has not: of DLPack and of other libraries, or
// copy-on-write.
bool owns_block(const c10::Storage& storage);

// Told of the blocks that tensors get and give back. Called without locks, by
// the thread that allocates or frees.
class AllocationObserver {
 public:
  virtual ~AllocationObserver() = default;
  virtual void allocated(int device_index,
                         uint64_t address,
                         uint64_t bytes,
                         int64_t stream_id) = 0;
  virtual void freed(int device_index, uint64_t address, uint64_t bytes) = 0;
  virtual void out_of_memory(int device_index, uint64_t bytes) = 0;
};

// The observer stays alive for good; null: nobody observes, which costs
// nothing.
void observe_allocations(AllocationObserver* observer);

}  // namespace torch_opencl::device
