#include "generator.h"

#include "stream.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>

#include <cstring>
#include <mutex>
#include <vector>

namespace torch_opencl::device {

namespace {

constexpr int64_t kStateBytes = sizeof(uint64_t) + sizeof(uint64_t);

}  // namespace

GeneratorImpl::GeneratorImpl(c10::DeviceIndex device_index)
    : c10::GeneratorImpl(
          c10::Device(c10::DeviceType::PrivateUse1, device_index),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {
  state_.seed = c10::default_rng_seed_val;
}

void GeneratorImpl::set_current_seed(uint64_t seed) {
  state_ = {seed, 0};
}

uint64_t GeneratorImpl::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom(true);
  set_current_seed(random);
  return random;
}

void GeneratorImpl::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
  state_.offset = offset;
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  at::TensorBase state = at::detail::empty_cpu({kStateBytes},
                                               at::kByte,
                                               std::nullopt,
                                               std::nullopt,
                                               std::nullopt,
                                               std::nullopt);
  auto* bytes = static_cast<uint8_t*>(state.mutable_data_ptr());
  std::memcpy(bytes, &state_.seed, sizeof(uint64_t));
  std::memcpy(bytes + sizeof(uint64_t), &state_.offset, sizeof(uint64_t));
  return state.getIntrusivePtr();
}

void GeneratorImpl::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == kStateBytes, "RNG state is wrong size");
  const auto* bytes = state.data_dtype_initialized<uint8_t>();
  PhiloxState restored;
  std::memcpy(&restored.seed, bytes, sizeof(uint64_t));
  std::memcpy(&restored.offset, bytes + sizeof(uint64_t), sizeof(uint64_t));
  set_offset(restored.offset);
  state_ = restored;
}

PhiloxState GeneratorImpl::reserve(uint64_t increment) {
  const PhiloxState reserved = state_;
  state_.offset += increment;
  return reserved;
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  auto* clone = new GeneratorImpl(device().index());
  clone->state_ = state_;
  return clone;
}

const at::Generator& default_generator(c10::DeviceIndex device_index) {
  static const auto* generators = [] {
    auto* created = new std::vector<at::Generator>;  // outlives every tensor
    for (int index = 0; index < runtime::device_count(); ++index) {
      created->push_back(at::make_generator<GeneratorImpl>(
          static_cast<c10::DeviceIndex>(index)));
      created->back().seed();
    }
    return created;
  }();
  const int index = device_index < 0 ? current_device() : device_index;
  return (*generators)[runtime::device(index).index()];
}

at::Generator new_generator(c10::DeviceIndex device_index) {
  const int index = device_index < 0 ? current_device() : device_index;
  return at::make_generator<GeneratorImpl>(
      static_cast<c10::DeviceIndex>(runtime::device(index).index()));
}

runtime::RandomArgument reserve_philox(
    const std::optional<at::Generator>& generator,
    c10::Device device,
    uint64_t increment) {
  auto* chosen = at::get_generator_or_default<GeneratorImpl>(
      generator, default_generator(device.index()));
  TORCH_CHECK(chosen->device().index() == index_of(device),
              "Expected a '",
              c10::Device(device.type(), index_of(device)),
              "' generator device but found '",
              chosen->device(),
              "'");
  increment = (increment + 3) / 4 * 4;
  const auto reserve = [](GeneratorImpl* from, uint64_t count) {
    const std::lock_guard lock(from->mutex_);
    return from->reserve(count);
  };
  if (auto* graph = current_queue(device.index()).capturing()) {
    // The generator lives as long as the graph.
    const at::Generator kept(
        c10::intrusive_ptr<c10::GeneratorImpl>::reclaim_copy(chosen));
    const auto source = [kept, reserve](uint64_t count) {
      return reserve(kept.get<GeneratorImpl>(), count);
    };
    const auto drawn = graph->draw(chosen, source, increment);
    return {0, drawn.offset / 4, drawn.source};
  }
  const auto [seed, offset] = reserve(chosen, increment);
  return {seed, offset / 4};
}

}  // namespace torch_opencl::device
