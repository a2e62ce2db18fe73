// Launches as plain records, and those that wait in their queue for what may
// join them. A record is complete when its op is called: nothing of it is
// looked up later.
#pragma once

#include "kernel.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace torch_opencl::runtime {

// Marks an argument that may be replaced before its launch: its index is
// written to `index`.
template <class T>
struct Patchable {
  T value;
  uint32_t* index;
};

// A value that brings its own size: a number in the type of a kernel's
// arithmetic.
template <class T>
concept SizedBytes = requires(const T& value) {
  { value.bytes.data() } -> std::convertible_to<const unsigned char*>;
  { value.size } -> std::convertible_to<size_t>;
};

// The bytes of a kernel's arguments, and which of them it writes.
class KernelArguments {
 public:
  template <class... Arguments>
  explicit KernelArguments(const Arguments&... arguments) {
    (add(arguments), ...);
  }

  void add(const BufferView& view) {
    add_value(view.memory);
    uses_[count_ - 1] = view.memory == nullptr    ? Use::kNone
                        : view.written == nullptr ? Use::kRead
                                                  : Use::kWritten;
    add_value(cl_ulong{view.offset});
    if (view.written != nullptr) {
      add_written(view.written);
    }
  }
  template <class T>
  void add(const Patchable<T>& argument) {
    *argument.index = count_;
    add_value(argument.value);
  }
  template <SizedBytes T>
  void add(const T& value) {
    std::memcpy(place(value.size), value.bytes.data(), value.size);
  }
  template <class T>
  requires(std::is_trivially_copyable_v<T> &&
           !SizedBytes<T>) void add(const T& value) {
    static_assert(!std::is_same_v<T, bool>, "kernels take int, not bool");
    add_value(value);
  }
  // All of `arguments`, after those that are there.
  void append(const KernelArguments& arguments);

  // Replaces an argument by one of its size.
  template <class T>
  void set(uint32_t index, const T& value) {
    std::memcpy(bytes_.data() + begins_[index], &value, sizeof(T));
  }

  // With the kernel's mutex held.
  void bind(const Kernel& kernel) const;
  // After the launch.
  void tell_written(Queue& queue) const;

 private:
  // OpenCL 1.2 guarantees 1024 bytes of parameters.
  static constexpr uint32_t kMaxBytes = 1024;
  static constexpr uint32_t kMaxArguments = 96;
  static constexpr uint32_t kMaxWritten = 16;

  // What the launch does with an argument's buffer.
  enum class Use : uint8_t { kNone, kRead, kWritten };

  template <class T>
  void add_value(const T& value) {
    std::memcpy(place(sizeof(T)), &value, sizeof(T));
  }
  // Of the next argument's bytes.
  std::byte* place(size_t size) {
    const uint32_t begin = begins_[count_];
    if (count_ == kMaxArguments || begin + size > kMaxBytes) [[unlikely]] {
      throw_too_large();
    }
    begins_[++count_] = static_cast<uint16_t>(begin + size);
    return bytes_.data() + begin;
  }
  [[noreturn]] static void throw_too_large();
  void add_written(const void* address);

  uint32_t count_ = 0;
  uint32_t written_count_ = 0;
  std::array<const void*, kMaxWritten> written_{};
  std::array<uint16_t, kMaxArguments + 1> begins_{};
  std::array<Use, kMaxArguments> uses_{};
  std::array<std::byte, kMaxBytes> bytes_;
};

// A kernel, its range and the bytes of its arguments.
class KernelLaunch {
 public:
  template <class... Arguments>
  KernelLaunch(Kernel& kernel,
               const NDRange& range,
               const Arguments&... arguments)
      : kernel_(&kernel), range_(range), arguments_(arguments...) {}

  // Replaces an argument by one of its size.
  template <class T>
  void set(uint32_t index, const T& value) {
    arguments_.set(index, value);
  }

  // On a queue that nothing waits in: that is the caller's business.
  void enqueue(Queue& queue) const;

 private:
  Kernel* kernel_;
  NDRange range_;
  KernelArguments arguments_;
};

// Work that waits in a queue and is enqueued ahead of its next command: the
// places, sizes and numbers of a call, and what keeps its memory alive.
class PendingLaunch {
 public:
  // `op` names it in errors.
  explicit PendingLaunch(const char* op);
  virtual ~PendingLaunch() = default;
  virtual void enqueue(Queue& queue) const = 0;
  const char* op() const { return op_; }
  // Profiler::correlation() where it was made: its command is that op's.
  uint64_t correlation() const { return correlation_; }

 private:
  const char* op_;
  uint64_t correlation_;
};

}  // namespace torch_opencl::runtime
