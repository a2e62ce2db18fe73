#include "reduction.h"

#include "../../cpp/aten/factories.h"
#include "../common/dtype_check.h"
#include "../common/integers.h"
#include "../common/kernel_table.h"
#include "kernel.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <numeric>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// A split must be worth a second launch: elements of an output, or of one that
// a GPU's work-item takes by itself.
constexpr int64_t kMinSplit = 16384;
constexpr int64_t kMinSplitOfItem = 256;
// Of a GPU's work-item that shares an output.
constexpr int64_t kMinShare = 16;
constexpr int64_t kGroupsPerUnit = 16;  // that hide the latency of loads
constexpr int64_t kSectorBytes = 32;

using LongDimensions = std::array<int64_t, kMaxDimensions>;

// Kept and reduced dimensions of a reduction, each fastest first.
struct ReductionProblem {
  int kept = 0;
  int reduced = 0;
  int64_t outputs = 1;
  int64_t length = 1;
  LongDimensions kept_sizes{}, reduced_sizes{};
  std::array<LongDimensions, kMaxReductionInputs> kept_strides{};
  std::array<LongDimensions, kMaxReductionInputs> reduced_strides{};
  std::array<LongDimensions, kMaxReductionOutputs> output_strides{};
  bool is_large = false;
  int leader = 0;  // the input whose memory decides the layout
};

ReductionProblem describe(const at::TensorIteratorBase& iter) {
  const int outputs = iter.noutputs();
  const int inputs = iter.ntensors() - outputs;
  const auto stride_of = [&iter](int operand, int d) {
    return iter.strides(operand)[d] /
           static_cast<int64_t>(iter.element_size(operand));
  };
  ReductionProblem problem;
  std::vector<int> dimensions(iter.ndim());
  std::iota(dimensions.begin(), dimensions.end(), 0);
  // Of several inputs the first that is not broadcast; iterators sort by the
  // outputs.
  int leader = outputs;
  while (leader + 1 < iter.ntensors() &&
         std::find(iter.strides(leader).begin(),
                   iter.strides(leader).end(),
                   0) != iter.strides(leader).end()) {
    ++leader;
  }
  std::stable_sort(dimensions.begin(), dimensions.end(), [&](int a, int b) {
    return iter.strides(leader)[a] < iter.strides(leader)[b];
  });
  problem.leader = leader - outputs;
  std::array<int64_t, kMaxReductionInputs> reach{};
  int64_t output_reach = 0;
  for (const int d : dimensions) {
    const int64_t size = iter.shape()[d];
    const bool is_reduced = iter.strides(0)[d] == 0 && size != 1;
    for (int i = 0; i < inputs; ++i) {
      const int64_t stride = stride_of(outputs + i, d);
      reach[i] += std::max<int64_t>(size - 1, 0) * stride;
      (is_reduced ? problem.reduced_strides[i][problem.reduced]
                  : problem.kept_strides[i][problem.kept]) = stride;
    }
    if (is_reduced) {
      problem.reduced_sizes[problem.reduced++] = size;
      problem.length *= size;
      continue;
    }
    for (int i = 0; i < outputs; ++i) {
      const int64_t stride = stride_of(i, d);
      problem.output_strides[i][problem.kept] = stride;
      output_reach = std::max(output_reach, size * stride);
    }
    problem.kept_sizes[problem.kept++] = size;
    problem.outputs *= size;
  }
  const int64_t farthest =
      std::max(output_reach, *std::max_element(reach.begin(), reach.end()));
  problem.is_large = !fits_int32(farthest) || !fits_int32(problem.length) ||
                     !fits_int32(problem.outputs);
  // At least one dimension of each kind, so that kernels need no special case.
  if (problem.kept == 0) {
    problem.kept_sizes[problem.kept++] = 1;
  }
  if (problem.reduced == 0) {
    problem.reduced_sizes[problem.reduced++] = 1;
  }
  return problem;
}

bool has_adjacent_outputs(const ReductionProblem& problem) {
  return problem.outputs > 1 && problem.kept_strides[problem.leader][0] <
                                    problem.reduced_strides[problem.leader][0];
}

// Indices (argmax) count in the logical order of the one reduced dimension, so
// sorting reduced dimensions by stride does not disturb them.
ReductionLayout choose_layout(const ReductionProblem& problem,
                              const runtime::DeviceInfo& info) {
  if (info.device_class == runtime::DeviceClass::kGpu) {
    return ReductionLayout::kGroup;
  }
  const bool are_short = problem.length < kReductionLanes &&
                         problem.kept_sizes[0] >= kReductionLanes;
  return has_adjacent_outputs(problem) || are_short ? ReductionLayout::kOuter
                                                    : ReductionLayout::kInner;
}

// Outputs of a work-group of kGroup: a work-item each, unless that leaves a GPU
// without work and their elements are enough to share.
uint8_t columns_of(const ReductionProblem& problem,
                   int64_t element_size,
                   const runtime::DeviceInfo& info) {
  const auto group = static_cast<int64_t>(kReductionGroup);
  if (!has_adjacent_outputs(problem)) {
    return problem.length < 32 ? group : 1;
  }
  const int64_t wanted = int64_t{info.compute_units} * kGroupsPerUnit;
  const int64_t least =
      std::clamp<int64_t>(kSectorBytes / element_size, 1, group);
  int64_t columns = group;
  while (columns > least && ceil_div(problem.outputs, columns) < wanted &&
         problem.length >= 2 * group / columns * kMinShare) {
    columns /= 2;
  }
  return static_cast<uint8_t>(columns);
}

// How many rows of a matrix, which follow each other in memory, are a whole
// number of vectors and wide enough; 1: none.
int64_t rows_joined(int64_t row, int64_t rows) {
  const int64_t step =
      kReductionLanes / std::gcd(row, int64_t{kReductionLanes});
  const int64_t joined =
      (kReductionWideRow + step * row - 1) / (step * row) * step;
  return joined * row <= kReductionColumns &&
                 rows >= joined * kReductionRowsAtOnce
             ? joined
             : 1;
}

runtime::Kernel& find_kernel(runtime::Device& device,
                             const ReductionKey& key,
                             bool is_merge) {
  static auto* tables = new std::array<KernelTable<ReductionKey>, 2>();
  return (*tables)[is_merge].find(device, key, [&]() -> runtime::Kernel& {
    std::vector<DType> dtypes(key.inputs.begin(),
                              key.inputs.begin() + key.input_count);
    dtypes.insert(dtypes.end(),
                  key.outputs.begin(),
                  key.outputs.begin() + key.output_count);
    return device.programs().get_generated(
        key.op->name,
        is_merge ? merge_text(key) : reduce_text(key),
        is_merge ? "merge" : "reduce",
        key.op->keeps_dtypes ? literal_options(dtypes) : "");
  });
}

class Launcher {
 public:
  Launcher(at::TensorIteratorBase& iter,
           const ReductionOp& op,
           c10::ArrayRef<at::Scalar> scalars,
           at::ScalarType compute)
      : iter_(iter),
        op_(op),
        scalars_(scalars),
        compute_(compute),
        problem_(describe(iter)),
        queue_(queue_of(iter.tensor_base(0))) {}

  void run() {
    if (problem_.outputs == 0) {
      return;
    }
    make_key();
    plan();
    at::Tensor partials;
    if (splits_ > 1) {
      key_.is_split = true;
      partials =
          empty_like_meta({splits_ * problem_.outputs * op_.state_bytes},
                          {},
                          at::TensorOptions(iter_.device(0)).dtype(at::kByte));
    }
    const BufferView view = arg(partials);
    {
      runtime::Kernel& kernel = find_kernel(queue_.device(), key_, false);
      const auto lock = queue_.lock(kernel);
      ArgumentBinder arguments(kernel);
      bind_outputs(arguments, view);
      bind_input(arguments);
      arguments.launch(queue_, work_);
    }
    if (splits_ > 1) {
      runtime::Kernel& kernel = find_kernel(queue_.device(), key_, true);
      const auto lock = queue_.lock(kernel);
      ArgumentBinder arguments(kernel);
      bind_outputs(arguments, view);
      arguments.launch(queue_, range(problem_.outputs, 64));
    }
  }

 private:
  void make_key() {
    const int outputs = iter_.noutputs();
    const runtime::DeviceInfo& info = queue_.device().info();
    key_.op = &op_;
    key_.compute = dtype_of(compute_);
    key_.output_count = static_cast<uint8_t>(outputs);
    key_.input_count = static_cast<uint8_t>(iter_.ntensors() - outputs);
    for (int i = 0; i < key_.input_count; ++i) {
      key_.inputs[i] = dtype_of(iter_.dtype(outputs + i));
    }
    for (int i = 0; i < key_.output_count; ++i) {
      key_.outputs[i] = dtype_of(iter_.dtype(i));
    }
    key_.kept = static_cast<uint8_t>(problem_.kept);
    key_.reduced = static_cast<uint8_t>(problem_.reduced);
    key_.is_large = problem_.is_large;
    key_.layout = choose_layout(problem_, info);
    if (key_.layout == ReductionLayout::kGroup) {
      key_.columns = columns_of(
          problem_, iter_.element_size(outputs + problem_.leader), info);
    }
    for (int i = 0; i < key_.input_count; ++i) {
      const bool is_unit = key_.layout == ReductionLayout::kInner
                               ? problem_.reduced_strides[i][0] == 1
                               : key_.layout == ReductionLayout::kOuter &&
                                     problem_.kept_strides[i][0] == 1;
      key_.units |= is_unit ? 1 << i : 0;
    }
    const int64_t run = key_.layout == ReductionLayout::kInner
                            ? problem_.reduced_sizes[0]
                            : problem_.kept_sizes[0];
    const bool is_inner = key_.layout == ReductionLayout::kInner;
    // Places along an only dimension, of 32 bits, where they are vectors.
    const bool has_vectors =
        op_.vectorizable || op_.moments ||
        (*op_.extreme &&
         (is_inner || (problem_.reduced == 1 && !problem_.is_large)));
    key_.is_vector = key_.input_count == 1 && key_.units == 1 && has_vectors &&
                     !c10::isComplexType(compute_);
    if (key_.is_vector && op_.vectorizable &&
        key_.layout == ReductionLayout::kOuter && problem_.reduced == 1 &&
        problem_.reduced_strides[0][0] == run) {
      joined_ = rows_joined(run, problem_.length);
      key_.joins_rows = joined_ > 1;
    }
    key_.is_vector &= key_.joins_rows || run >= kReductionLanes;
    rows_ = problem_.length / joined_;
  }

  // How many outputs a work-item takes and how often the reduction is split.
  void plan() {
    const runtime::DeviceInfo& info = queue_.device().info();
    const bool is_gpu = info.device_class == runtime::DeviceClass::kGpu;
    const int64_t wanted =
        int64_t(info.compute_units) * (is_gpu ? kGroupsPerUnit : 4);
    int64_t items = problem_.outputs;
    int64_t shortest = kMinSplit;
    if (key_.layout == ReductionLayout::kOuter) {
      const int64_t row = problem_.kept_sizes[0];
      const int64_t columns =
          key_.is_vector ? kReductionColumns : kReductionLanes;
      items = ceil_div(row, columns) * (problem_.outputs / row);
      if (key_.is_vector) {
        shortest /= std::min(row * joined_, columns);
      }
    } else if (key_.layout == ReductionLayout::kGroup) {
      items = ceil_div(items, key_.columns);
      if (key_.columns > 1) {
        shortest = kMinSplitOfItem * (kReductionGroup / key_.columns);
      }
    }
    splits_ = std::clamp<int64_t>(
        wanted / items, 1, std::max<int64_t>(rows_ / shortest, 1));
    per_split_ = ceil_div(rows_, splits_);
    // No part is empty, but that of no rows.
    splits_ = rows_ == 0 ? 1 : ceil_div(rows_, per_split_);
    tile_ = is_gpu ? 1 : std::max<int64_t>(items / (wanted * 4), 1);
    switch (key_.layout) {
      case ReductionLayout::kInner:
      case ReductionLayout::kOuter:
        work_ = range(ceil_div(items, tile_), splits_, 1, 1);
        break;
      case ReductionLayout::kGroup:
        work_ = range(items * kReductionGroup, splits_, kReductionGroup, 1);
        break;
    }
  }

  void bind_dimensions(ArgumentBinder& arguments,
                       const LongDimensions& numbers) {
    if (problem_.is_large) {
      arguments.add(numbers);
      return;
    }
    Dimensions narrow{};
    std::copy(numbers.begin(), numbers.end(), narrow.begin());
    arguments.add(narrow);
  }

  void bind_count(ArgumentBinder& arguments, int64_t count) {
    if (problem_.is_large) {
      arguments.add(count);
    } else {
      arguments.add(static_cast<uint32_t>(count));
    }
  }

  void bind_outputs(ArgumentBinder& arguments, const BufferView& partials) {
    for (int i = 0; i < key_.output_count; ++i) {
      arguments.add(arg_at(iter_.data_ptr(i), iter_.dtype(i)));
      bind_dimensions(arguments, problem_.output_strides[i]);
    }
    for (const at::Scalar& scalar : scalars_) {
      arguments.add(scalar_argument(scalar, compute_));
    }
    bind_dimensions(arguments, problem_.kept_sizes);
    bind_count(arguments, problem_.outputs);
    // Dtypes of users' inputs may not hold it.
    if (op_.keeps_dtypes) {
      arguments.add(problem_.length);
    } else {
      arguments.add(scalar_argument(problem_.length, compute_));
    }
    arguments.add(partials);
    arguments.add(static_cast<uint32_t>(splits_));
  }

  void bind_input(ArgumentBinder& arguments) {
    for (int i = 0; i < key_.input_count; ++i) {
      const int operand = iter_.noutputs() + i;
      arguments.add(problem_.length == 0 ? BufferView()
                                         : arg_in_at(iter_.data_ptr(operand),
                                                     iter_.dtype(operand)));
      bind_dimensions(arguments, problem_.kept_strides[i]);
      bind_dimensions(arguments, problem_.reduced_strides[i]);
    }
    bind_dimensions(arguments, problem_.reduced_sizes);
    bind_count(arguments, rows_);
    bind_count(arguments, per_split_);
    arguments.add(static_cast<uint32_t>(tile_));
    if (key_.joins_rows) {
      arguments.add(static_cast<uint32_t>(joined_));
      arguments.add(static_cast<uint32_t>(problem_.length - rows_ * joined_));
    }
  }

  at::TensorIteratorBase& iter_;
  const ReductionOp& op_;
  c10::ArrayRef<at::Scalar> scalars_;
  at::ScalarType compute_;
  ReductionProblem problem_;
  runtime::Queue& queue_;
  ReductionKey key_{};
  int64_t joined_ = 1;  // rows that count as one
  int64_t rows_ = 1;    // of these, without what makes no whole one
  int64_t splits_ = 1;
  int64_t per_split_ = 1;
  int64_t tile_ = 1;
  NDRange work_;
};

}  // namespace

namespace {

at::TensorIterator reduction_of(const Tensor& out, const Tensor& in) {
  return at::TensorIteratorConfig()
      .set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .add_output(out)
      .add_const_input(in)
      .resize_outputs(false)
      .is_reduction(true)
      .build();
}

// True where the parts or magnitudes of a complex input were reduced.
bool reduce_as_real(at::TensorIteratorBase& iter,
                    const ReductionOp& op,
                    c10::ArrayRef<at::Scalar> scalars) {
  if (op.complex == Complex::kParts) {
    auto parts = reduction_of(at::view_as_real(iter.tensor(0)),
                              at::view_as_real(iter.tensor(1)));
    reduce(parts, op, scalars);
    return true;
  }
  if (op.complex == Complex::kMagnitudes) {
    auto magnitudes = reduction_of(iter.tensor(0), at::abs(iter.tensor(1)));
    reduce(magnitudes, op, scalars);
    return true;
  }
  return false;
}

}  // namespace

void check_dtypes(const at::TensorIteratorBase& iter, const ReductionOp& op) {
  if (!op.of_floats) {
    return;
  }
  // ATen has converted inputs to the dtype of `out`, unless outputs are
  // moments.
  const at::ScalarType type = iter.dtype(op.moments ? 0 : iter.noutputs());
  if (at::isIntegralType(type, true) ||
      (op.moments && at::isComplexType(type))) {
    const std::string_view name = op.name;
    check_implemented(
        false, std::string(name.substr(0, name.find('.'))).c_str(), type);
  }
}

void reduce(at::TensorIteratorBase& iter,
            const ReductionOp& op,
            c10::ArrayRef<at::Scalar> scalars,
            std::optional<at::ScalarType> compute) {
  if (iter.ntensors() == 2 && at::isComplexType(iter.dtype(1)) &&
      reduce_as_real(iter, op, scalars)) {
    return;
  }
  check_dimensions(op.name, iter.ndim());
  const at::ScalarType own = compute_type(iter.dtype(iter.noutputs()));
  Launcher(iter, op, scalars, compute.value_or(own)).run();
}

}  // namespace torch_opencl::ops
