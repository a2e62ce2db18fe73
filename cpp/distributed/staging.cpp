#include "staging.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace torch_opencl::distributed {

namespace {

using at::Tensor;

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(kDevice).getStream(device);
}

// The caller may free the tensor before the copy has run.
void record_on_stream(const Tensor& tensor, const c10::Stream& stream) {
  if (!tensor.is_sparse()) {
    c10::impl::VirtualGuardImpl(kDevice).recordDataPtrOnStream(
        tensor.storage().data_ptr(), stream);
  }
}

}  // namespace

CopyStreams::Pair CopyStreams::on(c10::Device device) {
  const std::lock_guard lock(mutex_);
  const auto found = pairs_.find(device.index());
  if (found != pairs_.end()) {
    return found->second;
  }
  const c10::impl::VirtualGuardImpl guard(kDevice);
  const c10::Stream to_host = guard.getNewStream(device);
  const c10::Stream to_device = guard.getNewStream(device);
  return pairs_.emplace(device.index(), Pair{to_host, to_device}).first->second;
}

void Staging::check_device(const Tensor& tensor) {
  if (tensor.is_privateuseone()) {
    use(tensor.device());
  } else {
    has_cpu_tensors_ = true;
  }
  TORCH_CHECK(!(device_.has_value() && has_cpu_tensors_),
              operation_,
              ": Expected list of tensors on the same device");
}

void Staging::use(c10::Device device) {
  TORCH_CHECK(!device_.has_value() || *device_ == device,
              operation_,
              ": Expected list of tensors on the same device");
  device_ = device;
}

void Staging::follow(c10::Device device) {
  use(device);
  waits_ = true;
}

Tensor Staging::host_tensor(const Tensor& tensor) {
  if (tensor.is_sparse()) {
    return tensor.to(at::kCPU);  // its size is on the device: this waits
  }
  // Pinned by the driver of the device that copies. Contiguous: gloo takes the
  // elements as they are in memory.
  const c10::DeviceGuard guard(tensor.device());
  return at::empty(
      tensor.sizes(),
      at::TensorOptions(at::kCPU).dtype(tensor.dtype()).pinned_memory(true));
}

Tensor Staging::read(const Tensor& tensor) {
  check_device(tensor);
  inputs_.push_back(tensor);
  if (!tensor.is_privateuseone()) {
    return tensor;
  }
  waits_ = true;
  to_host_.push_back({tensor, host_tensor(tensor)});
  return to_host_.back().host;
}

Tensor Staging::written(const Tensor& tensor) {
  check_device(tensor);
  outputs_.push_back(tensor);
  if (!tensor.is_privateuseone()) {
    return tensor;
  }
  to_device_.push_back({tensor, host_tensor(tensor)});
  return to_device_.back().host;
}

Tensor Staging::updated(const Tensor& tensor) {
  const Tensor host = read(tensor);
  outputs_.push_back(tensor);
  if (tensor.is_privateuseone()) {
    to_device_.push_back({tensor, host});
  }
  return host;
}

namespace {

template <class List, class Function>
auto each(const List& list, const Function& function) {
  std::vector<decltype(function(list.front()))> result;
  result.reserve(list.size());
  for (const auto& item : list) {
    result.push_back(function(item));
  }
  return result;
}

}  // namespace

std::vector<Tensor> Staging::read(const std::vector<Tensor>& tensors) {
  return each(tensors, [this](const Tensor& tensor) { return read(tensor); });
}

std::vector<Tensor> Staging::written(const std::vector<Tensor>& tensors) {
  return each(tensors,
              [this](const Tensor& tensor) { return written(tensor); });
}

std::vector<Tensor> Staging::updated(const std::vector<Tensor>& tensors) {
  return each(tensors,
              [this](const Tensor& tensor) { return updated(tensor); });
}

std::vector<std::vector<Tensor>> Staging::read(
    const std::vector<std::vector<Tensor>>& lists) {
  return each(lists,
              [this](const std::vector<Tensor>& list) { return read(list); });
}

std::vector<std::vector<Tensor>> Staging::written(
    const std::vector<std::vector<Tensor>>& lists) {
  return each(
      lists, [this](const std::vector<Tensor>& list) { return written(list); });
}

void Staging::start() {
  if (!device_.has_value()) {
    return;
  }
  if (!device_->has_index()) {
    device_ = c10::impl::VirtualGuardImpl(kDevice).getDevice();
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  pair_ = streams_.on(*device_);
  for (Copy& copy : to_host_) {
    if (!copy.device.is_sparse()) {
      copy.device = copy.device.resolve_conj().resolve_neg().contiguous();
    }
  }
  called_.record(current_stream(*device_));
  called_.block(pair_->to_host);
  const c10::StreamGuard stream(pair_->to_host);
  for (const Copy& copy : to_host_) {
    if (!copy.device.is_sparse()) {
      copy.host.copy_(copy.device, /*non_blocking=*/true);
      record_on_stream(copy.device, pair_->to_host);
    }
  }
  copied_.record(pair_->to_host);
}

void Staging::wait_for_copies() {
  if (device_.has_value() && waits_) {
    copied_.synchronize();
  }
}

void Staging::copy_back() {
  if (!device_.has_value()) {
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  const c10::StreamGuard stream(pair_->to_device);
  called_.block(pair_->to_device);
  for (const Copy& copy : to_device_) {
    const bool is_plain = copy.device.is_sparse() ||
                          (copy.device.is_contiguous() &&
                           !copy.device.is_conj() && !copy.device.is_neg());
    const Tensor& source =
        is_plain ? copy.host
                 : copy.host.to(copy.device.device(), /*non_blocking=*/true);
    copy.device.copy_(source, /*non_blocking=*/true);
    record_on_stream(copy.device, pair_->to_device);
  }
  done_.record(pair_->to_device);
}

void Staging::block_current_stream() {
  if (device_.has_value()) {
    done_.block(current_stream(*device_));
  }
}

bool Staging::is_done() {
  return !device_.has_value() || done_.query();
}

std::optional<c10::Stream> Staging::stream_of_results() const {
  return pair_.has_value() ? std::optional(pair_->to_device) : std::nullopt;
}

void Staging::release() {
  to_host_.clear();
  to_device_.clear();
  inputs_.clear();
  outputs_.clear();
}

}  // namespace torch_opencl::distributed
