// Device guard, streams and events as c10 sees them.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/InlineDeviceGuard.h>

namespace torch_opencl::device {

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::DeviceType::PrivateUse1;
  GuardImpl() = default;
  explicit GuardImpl(c10::DeviceType type) {
    TORCH_INTERNAL_ASSERT(type == static_type);
  }

  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device device) const override;
  c10::Device getDevice() const override;
  void setDevice(c10::Device device) const override;
  void uncheckedSetDevice(c10::Device device) const noexcept override;
  c10::DeviceIndex deviceCount() const noexcept override;
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override;

  c10::Stream getStream(c10::Device device) const override;
  c10::Stream getDefaultStream(c10::Device device) const override;
  c10::Stream getNewStream(c10::Device device, int priority) const override;
  c10::Stream getStreamFromGlobalPool(c10::Device device,
                                      bool is_high_priority) const override;
  c10::Stream exchangeStream(c10::Stream stream) const override;
  void* getStreamNativeHandle(const c10::Stream stream) const override;
  bool queryStream(const c10::Stream& stream) const override;
  void synchronizeStream(const c10::Stream& stream) const override;
  void synchronizeDevice(c10::DeviceIndex device_index) const override;
  void recordDataPtrOnStream(const c10::DataPtr& data,
                             const c10::Stream& stream) const override;

  void record(void** event,
              const c10::Stream& stream,
              c10::DeviceIndex device_index,
              c10::EventFlag flag) const override;
  void block(void* event, const c10::Stream& stream) const override;
  bool queryEvent(void* event) const override;
  void synchronizeEvent(void* event) const override;
  void destroyEvent(void* event,
                    c10::DeviceIndex device_index) const noexcept override;
  double elapsedTime(void* start,
                     void* end,
                     c10::DeviceIndex device_index) const override;
};

// Devirtualised: what ops use.
using DeviceGuard = c10::impl::InlineDeviceGuard<GuardImpl>;
using OptionalDeviceGuard = c10::impl::InlineOptionalDeviceGuard<GuardImpl>;

}  // namespace torch_opencl::device
