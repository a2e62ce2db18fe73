#include "shuffle_channels.h"

#include "../../cpp/aten/launch.h"
#include "../common/bits.h"
#include "../common/kernel_table.h"
#include "../common/streamed.h"
#include "kernel_sources.h"

#include <algorithm>
#include <numeric>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int kLanes = 16;

// What the text depends on: what a step moves.
struct Key {
  int element_size;
  int pixels;
  int groups;
  int group_size;
  bool streams;

  bool operator==(const Key&) const = default;
  size_t hash() const {
    size_t hash = streams;
    for (const int field : {element_size, pixels, groups, group_size})
      hash = hash * 31 + field;
    return hash;
  }
};

std::string number(int value) {
  return std::to_string(value);
}

// Where the vectors of a step begin, counted in its values.
std::vector<int> starts(const Key& key) {
  const int length = key.pixels * key.groups * key.group_size;
  std::vector<int> starts;
  for (int next = 0; next < length; next += kLanes)
    starts.push_back(std::min(next, length - kLanes));
  return starts;
}

// The place in the source of a value of the result.
int source_of(const Key& key, int place) {
  const int square = key.groups * key.group_size;
  const int channel = place % square;
  return place - channel + channel % key.groups * key.group_size +
         channel / key.groups;
}

// A vector of the result out of those of the source.
std::string shuffled(const Key& key, int start) {
  const std::vector<int> sources = starts(key);
  std::string text;
  std::array<bool, kLanes> has{};
  for (size_t s = 0; s < sources.size(); ++s) {
    std::string lanes;
    bool adds = false;
    for (int l = 0; l < kLanes; ++l) {
      const int lane = source_of(key, start + l) - sources[s];
      const bool takes = !has[l] && lane >= 0 && lane < kLanes;
      lanes += ", " + number(has[l] ? l : takes ? kLanes + lane : -1);
      has[l] |= takes;
      adds |= takes;
    }
    if (adds) {
      const std::string source = "a" + number(static_cast<int>(s));
      text = "__builtin_shufflevector(" + (text.empty() ? source : text) +
             ", " + source + lanes + ")";
    }
  }
  return text;
}

std::string move_text(const Key& key) {
  // Vectors that are 16 channels of a group, or 16 groups, lie a pitch apart.
  const auto offset = [](int start, int line, const char* pitch) {
    return line == kLanes ? number(start / kLanes) + " * " + pitch
                          : number(start);
  };
  std::string text;
  int source = 0;
  for (const int start : starts(key))
    text += "const vector_t a" + number(source++) + " = LOAD_VECTOR(x + " +
            offset(start, key.group_size, "group_size") + "); ";
  for (const int start : starts(key))
    text += "STORE_VECTOR(" + shuffled(key, start) + ", y + " +
            offset(start, key.groups, "groups") + "); ";
  return text;
}

runtime::Kernel& find_kernel(runtime::Device& device, const Key& key) {
  static auto* table = new KernelTable<Key>();
  return table->find(device, key, [&]() -> runtime::Kernel& {
    return device.programs().get_generated(
        "shuffle_channels",
        preamble(bits_dtype(key.element_size), false) + "#define VECTOR " +
            bits_name(key.element_size) + "\n#define PIXELS " +
            number(key.pixels) + "\n#define STREAM " + number(key.streams) +
            "\n#define MOVE " + move_text(key) + "\n" +
            sources::shuffle_channels.text,
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
  // Few channels fill whole vectors with those of other pixels.
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
                  arg_to_read(self));
  return true;
}

}  // namespace torch_opencl::ops
