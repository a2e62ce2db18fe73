#include "host_allocator.h"

#include "fork.h"
#include "stream.h"

#include "../runtime/caching_allocator.h"
#include "../runtime/error.h"

#include <c10/util/Exception.h>

namespace torch_opencl::device {

namespace {

struct HostAllocatorImpl final
    : at::CachingHostAllocatorImpl<c10::Stream, runtime::Event> {
 private:
  void allocate_host_memory(size_t size, void** address) override {
    check_not_forked();
    mark_used();
    try {
      *address = runtime::allocate_pinned(current_device(), size);
    } catch (const runtime::OutOfMemoryError& error) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
    }
  }

  void free_block(at::HostBlock<c10::Stream>* block) override {
    runtime::free_pinned(block->ptr_);
  }

  void record_stream(std::optional<std::vector<runtime::Event>>& events,
                     c10::Stream stream) override {
    // Runs in destructors. A queue that takes no marker is lost; nobody knows
    // what it has run, so the block is not used again. Nor is it by a forked
    // child, which asks no driver.
    if (forked_after_use.load()) {
      return;
    }
    // Copies to and from the block are enqueued, also of a queue that captures
    // now; no pending launch uses it.
    try {
      events->push_back(queue_of(stream).record_enqueued());
    } catch (const std::exception& error) {
      TORCH_WARN("opencl: page-locked memory is not used again: ",
                 error.what());
    }
  }

  bool query_event(runtime::Event& event) override { return event.query(); }

  c10::Stream get_current_stream() const override { return current_stream(-1); }

  bool stream_is_capturing(c10::Stream /*stream*/) const override {
    return false;
  }
};

void free_host_block(void* context);

struct HostAllocator final
    : at::CachingHostAllocatorInterface<HostAllocatorImpl, free_host_block> {
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
};

HostAllocator* instance() {
  static auto* allocator = new HostAllocator;  // outlives every tensor
  return allocator;
}

void free_host_block(void* context) {
  instance()->free(context);
}

struct Registration {
  Registration() {
    at::setHostAllocator(c10::DeviceType::PrivateUse1, instance());
  }
} registration;

}  // namespace

at::HostAllocator* host_allocator() {
  return instance();
}

}  // namespace torch_opencl::device
