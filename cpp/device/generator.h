// Philox 4x32-10 generator, one a device. Its state is two numbers, so a
// kernel takes (seed, offset) by value and the host only counts.
#pragma once

#include "../runtime/random_argument.h"

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <optional>

namespace torch_opencl::device {

using runtime::PhiloxState;

class GeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit GeneratorImpl(c10::DeviceIndex device_index);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return state_.seed; }
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return state_.offset; }
  // A CPU byte tensor of 16: seed, then offset, as CUDA's.
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void set_state(const c10::TensorImpl& state) override;
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  // A multiple of four. The caller holds mutex_.
  PhiloxState reserve(uint64_t increment);

 private:
  GeneratorImpl* clone_impl() const override;

  PhiloxState state_;
};

// A negative index means the current device.
const at::Generator& default_generator(c10::DeviceIndex device_index);
at::Generator new_generator(c10::DeviceIndex device_index);

// For a kernel in which no work-item draws more than `increment` 32-bit
// numbers: locks `generator` (the device's default one where there is none),
// and moves its offset past them, in whole Philox calls of four. In a capture
// each replay does.
runtime::RandomArgument reserve_philox(
    const std::optional<at::Generator>& generator,
    c10::Device device,
    uint64_t increment);

}  // namespace torch_opencl::device
