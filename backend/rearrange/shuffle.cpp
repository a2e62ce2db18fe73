// pixel_shuffle, pixel_unshuffle and channel_shuffle: one copy between two
// views, which keeps the memory format, or shuffle_pixels or shuffle_channels.
#include "shuffle_channels.h"
#include "shuffle_pixels.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/PixelShuffle.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::Tensor;

Tensor empty_for(const Tensor& self, at::IntArrayRef sizes) {
  return at::empty(sizes, self.options(), self.suggest_memory_format());
}

Tensor pixel_shuffle(const Tensor& self, int64_t factor) {
  at::native::check_pixel_shuffle_shapes(self, factor);
  std::vector<int64_t> sizes = self.sizes().vec();
  const int64_t channel = self.dim() - 3;
  sizes[channel] /= factor * factor;
  sizes[channel + 1] *= factor;
  sizes[channel + 2] *= factor;
  Tensor out = empty_for(self, sizes);
  if (shuffle_pixels(self, out, factor, true)) {
    return out;
  }
  const Tensor parts =
      self.unflatten(channel, {sizes[channel], factor, factor});
  // (channel, row, column, height, width) -> (channel, height, row, width,
  // column)
  out.unflatten(-1, {self.size(-1), factor})
      .unflatten(-3, {self.size(-2), factor})
      .copy_(parts.movedim({channel + 1, channel + 2}, {-3, -1}));
  return out;
}

Tensor pixel_unshuffle(const Tensor& self, int64_t factor) {
  at::native::check_pixel_unshuffle_shapes(self, factor);
  std::vector<int64_t> sizes = self.sizes().vec();
  const int64_t channel = self.dim() - 3;
  sizes[channel] *= factor * factor;
  sizes[channel + 1] /= factor;
  sizes[channel + 2] /= factor;
  Tensor out = empty_for(self, sizes);
  if (shuffle_pixels(out, self, factor, false)) {
    return out;
  }
  const Tensor parts = self.unflatten(-1, {out.size(-1), factor})
                           .unflatten(-3, {out.size(-2), factor});
  out.unflatten(channel, {self.size(channel), factor, factor})
      .copy_(parts.movedim({-3, -1}, {channel + 1, channel + 2}));
  return out;
}

Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2,
              "channel_shuffle expects input with > 2 dims, but got input "
              "with sizes ",
              self.sizes());
  const int64_t channels = self.size(1);
  TORCH_CHECK(groups > 0,
              "Number of groups to divide channels in must be positive.",
              " Value of groups:",
              groups);
  TORCH_CHECK((channels % groups) == 0,
              "Number of channels must be divisible by groups. Got ",
              channels,
              " channels and ",
              groups,
              " groups.");
  Tensor out = empty_for(self, self.sizes());
  if (out.numel() > 0 && !shuffle_channels(self, out, groups)) {
    out.unflatten(1, {channels / groups, groups})
        .copy_(self.unflatten(1, {groups, channels / groups}).transpose(1, 2));
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("pixel_shuffle", TORCH_FN(pixel_shuffle));
  m.impl("pixel_unshuffle", TORCH_FN(pixel_unshuffle));
  m.impl("channel_shuffle", TORCH_FN(channel_shuffle));
}

}  // namespace torch_opencl::ops
