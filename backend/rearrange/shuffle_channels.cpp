#include "shuffle_channels.h"
#include "shuffle_text.h"

#include "../../cpp/aten/launch.h"
#include "../common/bits.h"
#include "../common/kernel_table.h"
#include "../common/non_temporal.h"
#include "kernel_sources.h"

#include <algorithm>
#include <numeric>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// What the text depends on: what a step moves.
struct Key {
  int element_size;
  int pixels;
  int groups;
  int group_size;
  bool non_temporal;
  std::array<uint8_t, 3> unused{};  // instead of padding
};

std::string number(int value) {
  return std::to_string(value);
}

// The place in the source of a value of the result.
int source_of(const Key& key, int place) {
  const int square = key.groups * key.group_size;
  const int channel = place % square;
  return place - channel + channel % key.groups * key.group_size +
         channel / key.groups;
}

// Values are numbered by their places in the source.
std::vector<ShuffledVectors> orders(const Key& key) {
  const int length = key.pixels * key.groups * key.group_size;
  // Vectors that are 16 channels of a group, or 16 groups, lie a pitch apart.
  const auto offset = [](int start, int line, const char* pitch) {
    return line == kLanes ? number(start / kLanes) + " * " + pitch
                          : number(start);
  };
  ShuffledVectors loaded, stored;
  cover_by_vectors(length, [&](int start) {
    loaded.push_back(
        {"x + " + offset(start, key.group_size, "group_size"), {}});
    stored.push_back({"y + " + offset(start, key.groups, "groups"), {}});
    for (int l = 0; l < kLanes; ++l) {
      loaded.back().values[l] = start + l;
      stored.back().values[l] = source_of(key, start + l);
    }
  });
  return {loaded, stored};
}

runtime::Kernel& find_kernel(runtime::Device& device, const Key& key) {
  static auto* table = new KernelTable<Key>();
  return table->find(device, key, [&]() -> runtime::Kernel& {
    return device.programs().get_generated(
        "shuffle_channels",
        preamble(bits_dtype(key.element_size), false) + "#define VECTOR " +
            bits_name(key.element_size) + "\n#define PIXELS " +
            number(key.pixels) + "\n#define NON_TEMPORAL " +
            number(key.non_temporal) + "\n#define MOVE " +
            shuffle_text(orders(key)) + "\n" + sources::shuffle_channels.text,
        "shuffle_channels");
  });
}

bool has_pixels(const Tensor& tensor) {
  return tensor.movedim(1, -1).is_contiguous();
}

}  // namespace

bool shuffle_channels(const Tensor& self, const Tensor& out, int64_t groups) {
  const int64_t channels = self.size(1);
  const int64_t group_size = channels / groups;
  const int64_t pixels = self.numel() / channels;
  if (std::min(groups, group_size) >= kLanes ||
      std::min(groups, group_size) < 2 || !aten::device_of(self).is_cpu() ||
      self.is_complex() || self.is_neg() || !has_pixels(self) ||
      !has_pixels(out) || !fits_int32(pixels) || !fits_int32(channels)) {
    return false;
  }
  // Few channels fill full vectors with those of other pixels.
  const int64_t pixels_of_step =
      channels < kLanes ? kLanes / std::gcd(kLanes, channels) : 1;
  if (pixels < pixels_of_step) {
    return false;
  }
  const auto& device = aten::device_of(self);
  const int64_t units = device.info().compute_units;
  const int64_t chunk = std::clamp<int64_t>(
      std::clamp<int64_t>(self.numel() / (32 * units), 4096, 65536) / channels,
      pixels_of_step,
      pixels);
  const bool by_channels = group_size >= kLanes;
  const bool by_groups = groups >= kLanes;
  const int64_t count = by_channels ? group_size : by_groups ? groups : kLanes;
  const bool fills_lines =
      count % kLanes == 0 && channels * self.element_size() % 64 == 0;
  const Key key{static_cast<int>(self.element_size()),
                static_cast<int>(pixels_of_step),
                static_cast<int>(std::min<int64_t>(groups, kLanes)),
                static_cast<int>(std::min<int64_t>(group_size, kLanes)),
                fills_lines && exceeds_caches(device, self.nbytes())};
  runtime::launch(queue_of(self),
                  find_kernel(aten::device_of(self), key),
                  range(pixels / chunk, 1),
                  static_cast<int32_t>(pixels),
                  static_cast<int32_t>(chunk),
                  static_cast<int32_t>(groups),
                  static_cast<int32_t>(group_size),
                  static_cast<int32_t>(count),
                  static_cast<int32_t>(by_channels ? 1 : group_size),
                  static_cast<int32_t>(by_channels ? groups : 1),
                  arg(out),
                  arg_in(self));
  return true;
}

}  // namespace torch_opencl::ops
