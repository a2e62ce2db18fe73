// A batch normalisation's tensors as channels by pixels, and how its work is
// split among work-items.
#pragma once

#include "kernel_sources.h"

#include "../../cpp/aten/launch.h"
#include "../common/integers.h"
#include "../common/lanes.h"
#include "../common/rows.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace torch_opencl::ops::batch_norm {

using namespace torch_opencl::aten;
using at::Tensor;

inline constexpr int kStepsCpu = 64;
inline constexpr int kItemWorkGroup = 64;     // kernels without local memory
inline constexpr int kReduceWorkGroup = 128;  // a work-group a job, on a GPU
// Of batch_norm_lines.cl: channels of a work-item, and elements that it
// transforms.
inline constexpr int64_t kChannelsOfLine = 512;
inline constexpr int64_t kElementsOfLines = 16384;
// Of batch_norm_channels.cl: the most channels of a work-item.
inline constexpr int64_t kMostChannels = 64;

// A tensor as channels by pixels, and how its work is split.
class BatchNormProblem {
 public:
  // The first tensor is the one written; then the input, then grad_output.
  explicit BatchNormProblem(std::initializer_list<Tensor> tensors);

  int64_t channels() const { return rows_.row_size(); }
  int64_t pixels() const { return rows_.count(); }
  int64_t chunks() const { return chunks_; }
  int64_t chunk() const { return chunk_; }

  // True where a work-item may take whole channels: there are enough of them.
  bool is_by_channels() const;
  // True where, besides, a cache keeps what is read twice of one.
  bool is_by_kept_channels() const;
  // Channels of a work-item, where nothing of them is read twice.
  int64_t channels_tile() const;
  // Where a cache keeps them.
  int64_t kept_channels_tile() const;

  // A launch over channels. `arguments` follow the tile.
  template <class... Arguments>
  [[nodiscard]] runtime::KernelLaunch launch_channels(
      const KernelSource& source,
      const char* kernel_name,
      at::ScalarType param_type,
      int64_t tile,
      const Arguments&... arguments) const {
    return rows_.with_index([&](auto index) {
      using Index = decltype(index);
      return launch_record(input_,
                           source,
                           kernel_name,
                           {{"DTYPE", dtype_of(input_)},
                            {"PARAM_DTYPE", dtype_of(param_type)},
                            {"LANES", kLanes},
                            {"DENSE", true},
                            {"NON_TEMPORAL", stores_non_temporal()},
                            {"TILE", kMostChannels},
                            {"INDEX64", sizeof(Index) == 8},
                            {"WG_SIZE", 1}},
                           range(ceil_div(channels(), tile), 1),
                           rows_.rows<Index>(1),
                           static_cast<Index>(pixels()),
                           static_cast<int32_t>(tile),
                           arguments...);
    });
  }

  // Launches over jobs of `chunk` pixels. `arguments` follow the job count.
  template <class... Arguments>
  void reduce(const KernelSource& source,
              const char* kernel_name,
              const char* lines_name,
              const Arguments&... arguments) const {
    if (lines_) {
      enqueue(input_,
              launch_lines(lines_name,
                           chunk_,
                           true,
                           compute_type(input_.scalar_type()),
                           arguments...));
      return;
    }
    const bool groups = !cpu_ && !channels_innermost_;
    const int work_group = cpu_     ? 1
                           : groups ? kReduceWorkGroup
                                    : kItemWorkGroup;
    rows_.with_index([&](auto index) {
      using Index = decltype(index);
      launch(input_,
             source,
             kernel_name,
             {{"DTYPE", dtype_of(input_)},
              {"CHANNELS_INNERMOST", channels_innermost_},
              {"LANES", lanes()},
              {"DENSE", dense_},
              {"INDEX64", sizeof(Index) == 8},
              {"WG_SIZE", work_group}},
             range(groups ? jobs_ * work_group : jobs_, work_group),
             rows_.rows<Index>(1),
             static_cast<Index>(pixels()),
             static_cast<Index>(chunk_),
             static_cast<int32_t>(jobs_),
             arguments...);
    });
  }

  // A launch over the elements. `arguments` follow the job count.
  template <class... Arguments>
  [[nodiscard]] runtime::KernelLaunch transform(
      const char* kernel_name,
      const char* lines_name,
      bool train,
      at::ScalarType param_type,
      const Arguments&... arguments) const {
    if (lines_) {
      const int64_t line = std::min(channels(), kChannelsOfLine);
      return launch_lines(lines_name,
                          std::max<int64_t>(1, kElementsOfLines / line),
                          train,
                          param_type,
                          arguments...);
    }
    const int steps = cpu_ ? kStepsCpu : 1;
    const int work_group = cpu_ ? 1 : kItemWorkGroup;
    const int64_t jobs =
        channels_innermost_
            ? ceil_div(channels(), lanes()) * ceil_div(pixels(), steps)
            : channels() * (pixels() / rows_.inner_size()) *
                  ceil_div(rows_.inner_size(), int64_t{steps} * lanes());
    const int64_t tile =
        cpu_ ? std::clamp<int64_t>(jobs / (32 * units()), 1, 64) : 1;
    return rows_.with_index([&](auto index) {
      using Index = decltype(index);
      return launch_record(input_,
                           sources::batch_norm_transform,
                           kernel_name,
                           {{"DTYPE", dtype_of(input_)},
                            {"PARAM_DTYPE", dtype_of(param_type)},
                            {"CHANNELS_INNERMOST", channels_innermost_},
                            {"LANES", lanes()},
                            {"DENSE", dense_},
                            {"STEPS", steps},
                            {"TRAIN", train},
                            {"NON_TEMPORAL", stores_non_temporal()},
                            {"INDEX64", sizeof(Index) == 8},
                            {"WG_SIZE", work_group}},
                           range(ceil_div(jobs, tile), work_group),
                           rows_.rows<Index>(1),
                           static_cast<Index>(pixels()),
                           jobs,
                           static_cast<int32_t>(tile),
                           arguments...);
    });
  }

  // Launches a work-group for every lanes() channels, whichever the layout.
  // `arguments` follow the channels.
  template <class... Arguments>
  void finish(const KernelSource& source,
              const char* kernel_name,
              at::ScalarType param_type,
              const Arguments&... arguments) const {
    const int work_group = cpu_ ? 1 : kItemWorkGroup;
    launch(input_,
           source,
           kernel_name,
           {{"DTYPE", dtype_of(input_)},
            {"PARAM_DTYPE", dtype_of(param_type)},
            {"CHANNELS_INNERMOST", true},
            {"LANES", lanes()},
            {"WG_SIZE", work_group}},
           range(ceil_div(channels(), lanes()) * work_group, work_group),
           static_cast<int32_t>(channels()),
           arguments...);
  }

 private:
  int lanes() const { return cpu_ ? kLanes : 1; }
  int64_t units() const { return aten::device_of(input_).info().compute_units; }
  bool stores_non_temporal() const;
  int64_t parts() const { return ceil_div(channels(), kChannelsOfLine); }

  // A launch of a kernel of batch_norm_lines.cl over `chunk` pixels a
  // work-item.
  template <class... Arguments>
  [[nodiscard]] runtime::KernelLaunch launch_lines(
      const char* kernel_name,
      int64_t chunk,
      bool train,
      at::ScalarType param_type,
      const Arguments&... arguments) const {
    return rows_.with_index([&](auto index) {
      using Index = decltype(index);
      return launch_record(
          input_,
          sources::batch_norm_lines,
          kernel_name,
          {{"DTYPE", dtype_of(input_)},
           {"PARAM_DTYPE", dtype_of(param_type)},
           {"LANES", kLanes},
           {"CHANNELS", kChannelsOfLine},
           {"DENSE", rows_.rows_contiguous() && channels() % kLanes == 0},
           {"TRAIN", train},
           {"NON_TEMPORAL", stores_non_temporal()},
           {"INDEX64", sizeof(Index) == 8}},
          range(parts() * ceil_div(pixels(), chunk), 1),
          rows_.rows<Index>(1),
          static_cast<Index>(pixels()),
          static_cast<Index>(chunk),
          arguments...);
    });
  }

  void split();

  RowsProblem rows_;
  Tensor input_;
  bool cpu_;
  bool channels_innermost_ = false;
  bool lines_ = false;  // batch_norm_lines.cl
  bool dense_ = false;  // a channel's lanes lie side by side, on a CPU
  int64_t chunk_ = 0;
  int64_t chunks_ = 0;
  int64_t jobs_ = 0;
};

}  // namespace torch_opencl::ops::batch_norm
