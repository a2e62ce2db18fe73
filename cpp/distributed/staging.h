// The tensors of one operation in host memory: pinned copies of those on a
// device, and the streams and events that order the copies.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace torch_opencl::distributed {

// Streams of their own for the copies of a process group, so that they overlap
// with kernels, and those of either direction with each other.
class CopyStreams {
 public:
  struct Pair {
    c10::Stream to_host;
    c10::Stream to_device;
  };
  Pair on(c10::Device device);

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, Pair> pairs_;
};

class Staging {
 public:
  Staging(CopyStreams& streams, const char* operation)
      : streams_(streams), operation_(operation) {}

  // What the inner backend gets for `tensor`, which it reads, writes, or both.
  // A tensor on the CPU is itself.
  at::Tensor read(const at::Tensor& tensor);
  at::Tensor written(const at::Tensor& tensor);
  at::Tensor updated(const at::Tensor& tensor);
  std::vector<at::Tensor> read(const std::vector<at::Tensor>& tensors);
  std::vector<at::Tensor> written(const std::vector<at::Tensor>& tensors);
  std::vector<at::Tensor> updated(const std::vector<at::Tensor>& tensors);
  std::vector<std::vector<at::Tensor>> read(
      const std::vector<std::vector<at::Tensor>>& lists);
  std::vector<std::vector<at::Tensor>> written(
      const std::vector<std::vector<at::Tensor>>& lists);

  // Without a tensor: the operation comes after what the current stream of
  // `device` has been given.
  void follow(c10::Device device);

  // In the caller's thread: enqueues the copies to the host behind what the
  // current stream has been given. Does not wait.
  void start();
  // The host waits until they are done.
  void wait_for_copies();
  // Enqueues the copies of what was written to the device.
  void copy_back();

  // After copy_back: makes the current stream wait for it.
  void block_current_stream();
  bool is_done();

  std::optional<c10::Device> device() const { return device_; }
  std::optional<c10::Stream> stream_of_results() const;
  const std::vector<at::Tensor>& inputs() const { return inputs_; }
  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  // Gives up the tensors, which the copies no longer need.
  void release();

 private:
  struct Copy {
    at::Tensor device;
    at::Tensor host;
  };
  at::Tensor host_tensor(const at::Tensor& tensor);
  void check_device(const at::Tensor& tensor);
  void use(c10::Device device);

  CopyStreams& streams_;
  const char* operation_;
  std::optional<c10::Device> device_;
  bool has_cpu_tensors_ = false;
  bool waits_ = false;  // for the device, ahead of the inner backend
  std::optional<CopyStreams::Pair> pair_;
  std::vector<Copy> to_host_;
  std::vector<Copy> to_device_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  c10::Event called_{c10::DeviceType::PrivateUse1};
  c10::Event copied_{c10::DeviceType::PrivateUse1};
  c10::Event done_{c10::DeviceType::PrivateUse1};
};

}  // namespace torch_opencl::distributed
