#include "batch_norm_problem.h"

#include "../common/non_temporal.h"

namespace torch_opencl::ops::batch_norm {
namespace {

// Elements of a reduction's job: enough to amortise its start, few enough to
// stay in a cache for the second look at them.
constexpr int64_t kJobOfPixels = 8192;
constexpr int64_t kJobOfChannelsCpu = 256;
constexpr int64_t kJobOfChannelsGpu = 128;
constexpr int64_t kMostChunksGpu = 512;
// The most that a work-item reads of a channel, and pixels that pay for its
// start and stay in its cache.
constexpr int64_t kChannelBytes = int64_t{2} << 20;
constexpr int64_t kChannelTilePixels = 24576;

}  // namespace

BatchNormProblem::BatchNormProblem(std::initializer_list<Tensor> tensors)
    : rows_("batch_norm", tensors, 1),
      input_(tensors.begin()[1]),
      cpu_(aten::device_of(input_).is_cpu()) {
  channels_innermost_ = channels() > 1 && rows_.row_stride(1) == 1 &&
                        (rows_.inner_stride(1) != 1 || rows_.inner_size() == 1);
  lines_ = cpu_ && channels_innermost_;
  dense_ = cpu_ && !channels_innermost_;
  for (int t = 0; t < static_cast<int>(tensors.size()); ++t) {
    dense_ = dense_ && rows_.inner_stride(t) == 1;
  }
  split();
}

bool BatchNormProblem::is_by_channels() const {
  const int64_t rounds = ceil_div(channels(), units());
  return dense_ && 4 * rounds * units() <= 5 * channels();
}

bool BatchNormProblem::is_by_kept_channels() const {
  const int64_t bytes =
      pixels() * input_.element_size() * (rows_.tensors() - 1);
  return is_by_channels() && bytes <= kChannelBytes;
}

int64_t BatchNormProblem::channels_tile() const {
  return std::min(kMostChannels, ceil_div(channels(), 8 * units()));
}

int64_t BatchNormProblem::kept_channels_tile() const {
  return std::clamp<int64_t>(kChannelTilePixels / pixels(), 1, channels_tile());
}

// Where all that is read and written passes through the caches, the next op
// finds little of the result there. Runs of whole lines: the others' ends
// would share lines with plain stores.
bool BatchNormProblem::stores_non_temporal() const {
  const int64_t run = channels_innermost_ ? channels() : rows_.inner_size();
  return run % kLanes == 0 && is_non_temporal(aten::device_of(input_),
                                              input_.scalar_type(),
                                              input_.numel() * rows_.tensors());
}

void BatchNormProblem::split() {
  if (lines_) {
    const int64_t wanted = std::max<int64_t>(1, 8 * units() / parts());
    chunk_ = std::max<int64_t>(16, ceil_div(pixels(), wanted));
    chunks_ = ceil_div(pixels(), chunk_);
    return;
  }
  const int64_t blocks =
      channels_innermost_ ? ceil_div(channels(), lanes()) : channels();
  chunk_ = !channels_innermost_ ? kJobOfPixels
           : cpu_               ? kJobOfChannelsCpu
                                : kJobOfChannelsGpu;
  if (!cpu_) {
    chunk_ = std::max(chunk_, ceil_div(pixels(), kMostChunksGpu));
  }
  // Few channels: smaller jobs, so that every core has some.
  const int64_t wanted = 4 * units();
  const int64_t smallest = channels_innermost_ ? 16 : 512;
  while (chunk_ > smallest && blocks * ceil_div(pixels(), chunk_) < wanted) {
    chunk_ /= 2;
  }
  chunks_ = ceil_div(pixels(), chunk_);
  jobs_ = blocks * chunks_;
}

}  // namespace torch_opencl::ops::batch_norm
