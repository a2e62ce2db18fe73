// Generated kernels by what their text depends on, so that the text is written
// once a device.
#pragma once

#include "../../cpp/runtime/growing_table.h"
#include "../../cpp/runtime/program_cache.h"

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
    return *kernels_.find({&device, key}, [&build] { return &build(); });
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

  runtime::GrowingTable<DeviceKey, runtime::Kernel*, Hash> kernels_;
};

}  // namespace torch_opencl::ops
