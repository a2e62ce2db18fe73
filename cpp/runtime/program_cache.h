// Source + options -> program -> kernel, in memory and on disk.
#pragma once

#include "device.h"
#include "dtype.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace torch_opencl::runtime {

// A .cl file embedded at build time, its includes already expanded.
struct KernelSource {
  const char* name;  // "softmax.cl"
  const char* text;
};

// One -D of a specialisation. Names are string literals: they are compared by
// address on the hot path and only spelled out when a program is built.
struct Define {
  enum class Kind { kNumber, kDType, kOption };

  constexpr Define(const char* name, int64_t value)
      : name(name), value(value), kind(Kind::kNumber) {}
  // Renders as the dtype's torch name: -D DTYPE=float32
  constexpr Define(const char* name, DType dtype)
      : name(name), value(static_cast<int64_t>(dtype)), kind(Kind::kDType) {}
  // Another option of the compiler, given where it is on.
  static constexpr Define option(const char* text, bool is_on) {
    Define option(text, int64_t{is_on});
    option.kind = Kind::kOption;
    return option;
  }
  std::string text() const;

  const char* name;
  int64_t value;
  Kind kind;
};

struct Kernel {
  cl_kernel handle = nullptr;
  const char* name = nullptr;
  // In guard mode, what the kernel does with each argument (argument_access.h).
  std::string access;
  // clSetKernelArg on one cl_kernel is not thread-safe: held from the first
  // argument to the enqueue.
  std::mutex mutex;
};

// Build option of programs that tell their kernels' parameters. Drivers do not
// keep this in binaries, so such programs are built from source and stored as
// if without it; what they told is stored beside (kernel_with_arguments).
constexpr const char* kArgumentOption = "-cl-kernel-arg-info";

class ProgramCache {
 public:
  explicit ProgramCache(Device& device);
  ~ProgramCache();

  // The kernel `kernel_name` of an embedded source, specialised by `defines`.
  // Hot path: one hash of pointers and integers under a shared lock.
  Kernel& get(const KernelSource& source,
              const char* kernel_name,
              std::span<const Define> defines);

  // The kernel of a generated source text; callers keep the reference.
  Kernel& get_generated(const std::string& name,
                        const std::string& text,
                        const std::string& kernel_name,
                        const std::string& options = "");

  // A built program that the caller releases: for kernels of a library, which
  // come and go with its plans. From disk where it is there, too.
  cl_program build_released(const std::string& name, const std::string& text);

  struct Statistics {
    int64_t built = 0;    // compiled from source
    int64_t loaded = 0;   // from the disk cache
    int64_t damaged = 0;  // disk entries thrown away and rebuilt
    double build_seconds = 0;
  };
  Statistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace torch_opencl::runtime
