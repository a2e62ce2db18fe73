// Generated kernels by what their text depends on, so that the text is written
// once a device.
#pragma once

#include "../../cpp/runtime/program_cache.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace torch_opencl::ops {

// Key is a struct with operator== and hash(). Never destroy one: a driver may
// be gone before static destructors run.
template <class Key>
class KernelTable {
 public:
  // `build()` returns the kernel that the key is the first to ask for.
  template <class Build>
  runtime::Kernel& find(const runtime::Device& device,
                        const Key& key,
                        const Build& build) {
    const DeviceKey device_key{&device, key};
    {
      const std::shared_lock lock(mutex_);
      const auto found = kernels_.find(device_key);
      if (found != kernels_.end()) [[likely]] {
        return *found->second;
      }
    }
    runtime::Kernel& kernel = build();
    const std::unique_lock lock(mutex_);
    kernels_.emplace(device_key, &kernel);
    return kernel;
  }

 private:
  struct DeviceKey {
    const runtime::Device* device;
    Key key;
    bool operator==(const DeviceKey&) const = default;
  };
  struct Hash {
    size_t operator()(const DeviceKey& key) const {
      return std::hash<const void*>()(key.device) * 31 ^ key.key.hash();
    }
  };

  std::shared_mutex mutex_;
  std::unordered_map<DeviceKey, runtime::Kernel*, Hash> kernels_;
};

}  // namespace torch_opencl::ops
