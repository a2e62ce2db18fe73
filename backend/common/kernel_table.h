// Generated kernels by what their text depends on, so that the text is written
// once a device.
#pragma once

#include "../../cpp/runtime/growing_table.h"
#include "../../cpp/runtime/program_cache.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

namespace torch_opencl::ops {

// Key is a struct without padding: its bytes are compared and hashed. Never
// destroy a table: a driver may be gone before static destructors run.
template <class Key>
class KernelTable {
  static_assert(std::has_unique_object_representations_v<Key>);

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

    auto words() const {
      std::array<uint64_t, (sizeof(Key) + 7) / 8> words{};
      std::memcpy(words.data(), &key, sizeof(Key));
      return words;
    }
    bool operator==(const DeviceKey& other) const {
      const auto mine = words();
      const auto others = other.words();
      uint64_t differences = 0;
      for (size_t i = 0; i < mine.size(); ++i) {
        differences |= mine[i] ^ others[i];
      }
      return device == other.device && differences == 0;
    }
  };
  struct Hash {
    size_t operator()(const DeviceKey& key) const {
      uint64_t hash = std::hash<const void*>()(key.device);
      for (const uint64_t word : key.words()) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15;  // 2^64 / phi
        hash ^= hash >> 29;
      }
      return hash;
    }
  };

  runtime::GrowingTable<DeviceKey, runtime::Kernel*, Hash> kernels_;
};

}  // namespace torch_opencl::ops
