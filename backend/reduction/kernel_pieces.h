// Pieces of the text of reduction kernels.
#pragma once

#include "kernel.h"

#include <functional>

namespace torch_opencl::ops {

const char* identity_of(const ReductionKey& key);
// "out0"
std::string output_name(int i);
// "at0"
std::string numbered(const char* name, int i);
// Stride of the lanes of input i: dimension 0 of `strides`.
std::string lane_stride(const ReductionKey& key, const char* strides, int i);
// `step` of `accumulator` (state_t) over the elements at `offset(i)` of every
// input.
std::string step_text(const ReductionKey& key,
                      const std::string& accumulator,
                      const std::function<std::string(int)>& offset,
                      const std::string& index);
// Joins accumulator `b` to `a`; `type` is theirs.
std::string combine_text(const ReductionKey& key,
                         const std::string& a,
                         const std::string& b,
                         const std::string& type = "state_t");
// Whether sums of folds keep what their rounding loses.
bool is_compensated(const ReductionKey& key);
// Joins accumulator `b` to `a`, and to `lost` what that loses, if anything
// does.
std::string fold_text(const ReductionKey& key,
                      const std::string& a,
                      const std::string& lost,
                      const std::string& b,
                      const std::string& type = "state_t");
// After the last fold.
std::string regain_text(const ReductionKey& key,
                        const std::string& a,
                        const std::string& lost);
// Joins the accumulators of an array to its first.
std::string tree_text(const ReductionKey& key,
                      const std::string& lanes,
                      const std::string& width);
// Writes the outputs of `state`, or the accumulator itself.
std::string finish_text(const ReductionKey& key, bool is_split);
// Offsets of the output numbered `linear`.
std::string kept_text(const ReductionKey& key, bool with_input, int first);
// The loop over a work-item's runs of up to `limit` outputs along dimension 0,
// to the offsets of a run's line.
std::string runs_text(const ReductionKey& key, const std::string& limit);

// The loops of a work-item over vectors: kernel_vectors.cpp.
// Vectors of integers, which lanes.clh has none of.
std::string integer_lanes_text(const ReductionKey& key);
std::string inner_vectors_text(const ReductionKey& key);
std::string inner_extremes_text(const ReductionKey& key);
std::string inner_moments_text(const ReductionKey& key);
std::string outer_vectors_text(const ReductionKey& key);
std::string outer_moments_text(const ReductionKey& key);
std::string outer_extremes_text(const ReductionKey& key);

}  // namespace torch_opencl::ops
