#include "shuffle_pixels.h"
#include "shuffle_text.h"

#include "../../cpp/aten/launch.h"
#include "../common/bits.h"
#include "../common/integers.h"
#include "../common/kernel_table.h"
#include "../common/non_temporal.h"
#include "kernel_sources.h"

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int kMostFactor = 4;

// problem_t of shuffle_pixels.cl.
struct ShufflePixelsProblem {
  std::array<int64_t, 2> packed_strides;
  std::array<int64_t, 2> rows_strides;
  int32_t lines;
  int32_t height;
  int32_t width;
  int32_t channels;
  int32_t chunk;
};

// What the text depends on. A step of the kernel moves `channels` of `pixels`:
// 16 of one, or all of several.
struct Key {
  int element_size;
  int factor;
  int channels;
  int pixels;
  bool to_rows;
  bool non_temporal;
  std::array<uint8_t, 2> unused{};  // instead of padding

  int square() const { return factor * factor; }
};

std::string number(int value) {
  return std::to_string(value);
}

// The order between packed values (taken = 1) and rows (taken = square) in
// which place / taken has still to be separated. Values are numbered by their
// places among the packed ones.
ShuffledVectors partly_separated(const Key& key, int taken) {
  const int left = key.square() / taken;
  const int values = key.pixels * key.channels;
  ShuffledVectors vectors;
  cover_by_vectors(values * key.square(), [&](int start) {
    ShuffledVector vector{"packed_at + " + number(start), {}};
    for (int l = 0; l < kLanes; ++l) {
      const int place = start + l;
      const int low = place / (values * left);
      const int value = place / left % values;
      vector.values[l] = value * key.square() + place % left * taken + low;
    }
    vectors.push_back(vector);
  });
  return vectors;
}

ShuffledVectors rows(const Key& key) {
  const int line = key.pixels * key.factor * key.channels;
  ShuffledVectors vectors;
  for (int y = 0; y < key.factor; ++y)
    cover_by_vectors(line, [&](int start) {
      ShuffledVector vector{
          "rows_at + " + number(y) + " * row + " +
              (key.channels == kLanes ? number(start / kLanes) + " * channels"
                                      : number(start)),
          {}};
      for (int l = 0; l < kLanes; ++l) {
        const int place = start + l;
        const int column = place / key.channels;
        const int value =
            column / key.factor * key.channels + place % key.channels;
        vector.values[l] =
            value * key.square() + y * key.factor + column % key.factor;
      }
      vectors.push_back(vector);
    });
  return vectors;
}

// The orders that values go through, each by shuffles of few vectors.
std::vector<ShuffledVectors> orders(const Key& key) {
  std::vector<ShuffledVectors> orders = {partly_separated(key, 1)};
  if (key.channels == kLanes) {
    const int step = key.factor == 3 ? 3 : 2;
    for (int taken = step; taken < key.square(); taken *= step)
      orders.push_back(partly_separated(key, taken));
  }
  orders.push_back(rows(key));
  if (!key.to_rows) std::reverse(orders.begin(), orders.end());
  return orders;
}

runtime::Kernel& find_kernel(runtime::Device& device, const Key& key) {
  static auto* table = new KernelTable<Key>();
  return table->find(device, key, [&]() -> runtime::Kernel& {
    std::string text = preamble(bits_dtype(key.element_size), false);
    text += std::string("#define VECTOR ") + bits_name(key.element_size);
    for (const auto& [name, value] :
         {std::pair("FACTOR", key.factor),
          std::pair("CHANNELS", key.channels),
          std::pair("PIXELS", key.pixels),
          std::pair("NON_TEMPORAL", int(key.non_temporal))})
      text += std::string("\n#define ") + name + " " + number(value);
    text += "\n#define MOVE " + shuffle_text(orders(key)) + "\n";
    return device.programs().get_generated("shuffle_pixels",
                                           text + sources::shuffle_pixels.text,
                                           "shuffle_pixels");
  });
}

// As many pixels as fill the vectors of a row best, of at most 16; 0 where no
// line has a vector.
int pixels_of(int64_t width, int64_t factor, int64_t channels) {
  int best = 0;
  int64_t best_waste = 0;
  for (int pixels = 1; pixels <= std::min<int64_t>(width, kLanes); ++pixels) {
    const int64_t line = pixels * factor * channels;
    const int64_t waste = round_up(line, kLanes) - line;
    if (line >= kLanes && (best == 0 || waste * best < best_waste * pixels)) {
      best = pixels;
      best_waste = waste;
    }
  }
  return best;
}

}  // namespace

bool shuffle_pixels(const Tensor& packed,
                    const Tensor& rows,
                    int64_t factor,
                    bool to_rows) {
  if (factor < 2 || factor > kMostFactor || packed.dim() != 4 ||
      packed.numel() == 0 || !aten::device_of(packed).is_cpu() ||
      packed.is_complex() || packed.is_neg() || rows.is_neg()) {
    return false;
  }
  const int64_t channels = rows.size(1);
  const int64_t width = packed.size(3);
  const bool by_channels = channels >= kLanes;
  const int pixels = by_channels ? 1 : pixels_of(width, factor, channels);
  if (packed.stride(1) != 1 || (rows.stride(1) != 1 && channels > 1) ||
      (packed.stride(3) != packed.size(1) && width > 1) ||
      rows.stride(3) != channels || pixels == 0 ||
      !fits_int32(packed.size(1) * width) ||
      !fits_int32(rows.stride(2) * factor) ||
      !fits_int32(packed.size(0) * packed.size(2))) {
    return false;
  }
  const auto& device = aten::device_of(packed);
  const int64_t lines = packed.size(0) * packed.size(2);
  const int64_t units = device.info().compute_units;
  const int64_t chunk = std::clamp<int64_t>(
      lines / (32 * units),
      1,
      std::max<int64_t>(1, 524288 / (packed.size(1) * width)));
  const Key key{static_cast<int>(packed.element_size()),
                static_cast<int>(factor),
                by_channels ? kLanes : static_cast<int>(channels),
                pixels,
                to_rows,
                is_non_temporal(device, packed.scalar_type(), packed.numel())};
  const ShufflePixelsProblem problem{{packed.stride(0), packed.stride(2)},
                                     {rows.stride(0), rows.stride(2)},
                                     static_cast<int32_t>(lines),
                                     static_cast<int32_t>(packed.size(2)),
                                     static_cast<int32_t>(width),
                                     static_cast<int32_t>(channels),
                                     static_cast<int32_t>(chunk)};
  runtime::launch(queue_of(packed),
                  find_kernel(aten::device_of(packed), key),
                  range(ceil_div(lines, chunk), 1),
                  problem,
                  arg(packed),
                  arg(rows));
  return true;
}

}  // namespace torch_opencl::ops
