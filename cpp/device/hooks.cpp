// What generic ATen code asks of an accelerator, and the device's name.
#include "hooks.h"

#include "graph.h"

#include "allocator.h"
#include "fork.h"
#include "generator.h"
#include "guard.h"
#include "host_allocator.h"
#include "stream.h"

#include "../runtime/caching_allocator.h"
#include "../runtime/queue.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>

#include <algorithm>

namespace torch_opencl::device {

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return runtime::device_count() > 0; }

  void init() const override {
    check_not_forked();
    runtime::device(0);  // throws where there is no device at all
    mark_used();
  }

  bool hasPrimaryContext(c10::DeviceIndex device_index) const override {
    return runtime::device(device_index).has_context();
  }

  c10::DeviceIndex deviceCount() const override {
    return GuardImpl().deviceCount();
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  void setCurrentDevice(c10::DeviceIndex device_index) const override {
    exchange_device(device_index);
  }
  c10::DeviceIndex exchangeDevice(
      c10::DeviceIndex device_index) const override {
    return device_index < 0
               ? c10::DeviceIndex{-1}
               : static_cast<c10::DeviceIndex>(exchange_device(device_index));
  }
  c10::DeviceIndex maybeExchangeDevice(
      c10::DeviceIndex device_index) const override {
    return exchangeDevice(device_index);
  }

  bool isPinnedPtr(const void* data) const override {
    return runtime::is_pinned(data);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return host_allocator();
  }

  at::Device getDeviceFromPtr(void* data) const override {
    const auto location = runtime::locate(data);
    TORCH_CHECK(location.memory != nullptr,
                "The specified pointer is not on an opencl device");
    return c10::Device(c10::DeviceType::PrivateUse1,
                       static_cast<c10::DeviceIndex>(location.device_index));
  }

  const at::Generator& getDefaultGenerator(
      c10::DeviceIndex device_index) const override {
    return default_generator(device_index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device_index) const override {
    return new_generator(device_index);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage,
                              size_t new_bytes) const override {
    TORCH_CHECK(storage.resizable(),
                "Trying to resize storage that is not resizable");
    // A pending launch knows the memory by its place.
    runtime::flush_pending(storage.device().index());
    const DeviceGuard guard(storage.device());
    c10::DataPtr resized = allocator()->allocate(new_bytes);
    allocator()->copy_data(resized.mutable_get(),
                           storage.data(),
                           std::min(new_bytes, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(resized));
    storage.set_nbytes(new_bytes);
  }
};

bool registered = false;

// At load time, so that C++ programs need no Python to name the device. Where
// another backend is there first, the Python package explains; throwing here
// would end the process.
struct Registration {
  Registration() {
    if (at::isPrivateUse1HooksRegistered() ||
        (c10::is_privateuse1_backend_registered() &&
         c10::get_privateuse1_backend() != "opencl")) {
      return;
    }
    c10::register_privateuse1_backend("opencl");
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    register_graphs();
    registered = true;
  }
} registration;

}  // namespace

bool hooks_registered() {
  return registered;
}

}  // namespace torch_opencl::device
