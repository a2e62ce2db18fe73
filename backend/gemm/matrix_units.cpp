#include "matrix_units.h"

#include "../../cpp/aten/solver.h"
#include "../../cpp/runtime/command_graph.h"
#include "../../cpp/runtime/config.h"
#include "product_gpu.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <array>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace torch_opencl::ops {

namespace {

constexpr std::array<std::pair<std::string_view, MatrixUnits>, 5> kNames = {
    {{"gfx11", MatrixUnits::kGfx11},
     {"gfx12", MatrixUnits::kGfx12},
     {"sm_80", MatrixUnits::kSm80},
     {"intel_8", MatrixUnits::kIntel8},
     {"intel_16", MatrixUnits::kIntel16}}};

// Whose compiler may know which: others are not asked, for a compiler may fail
// in worse ways than by an error.
std::vector<MatrixUnits> candidates(const runtime::DeviceInfo& info) {
  if ((info.type & CL_DEVICE_TYPE_GPU) == 0) {
    return {};
  }
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  if (has(info.vendor, "NVIDIA")) {
    return {MatrixUnits::kSm80};
  }
  if (info.name.starts_with("gfx11")) {
    return {MatrixUnits::kGfx11};
  }
  if (info.name.starts_with("gfx12")) {
    return {MatrixUnits::kGfx12};
  }
  if (has(info.extensions, "cl_intel_subgroup_matrix_multiply_accumulate")) {
    return {MatrixUnits::kIntel8, MatrixUnits::kIntel16};
  }
  return {};
}

// Small integers, whose products and sums are exact.
at::Tensor numbers(int64_t rows, int64_t columns, int64_t step) {
  return at::arange(rows * columns, at::kLong)
      .mul_(step)
      .remainder_(17)
      .sub_(8)
      .view({rows, columns})
      .to(at::kFloat);
}

bool multiplies(const at::TensorBase& on,
                at::ScalarType dtype,
                MatrixUnits units) {
  const at::Tensor left = numbers(70, 50, 7), right = numbers(50, 66, 11);
  const auto options = on.options().dtype(dtype);
  const at::Tensor out = at::empty({70, 66}, options);
  try {
    multiply_with_units(units, left.to(options), right.to(options), out);
    return out.cpu().equal(left.matmul(right).to(dtype));
  } catch (const std::exception&) {
    return false;
  }
}

struct Refusals {
  std::mutex mutex;
  std::set<std::pair<int, std::string_view>> kernels;  // by device
};

Refusals& refusals() {
  static auto* instance = new Refusals();
  return *instance;
}

std::pair<int, std::string_view> refusal_of(const at::TensorBase& on,
                                            const char* kernel) {
  return {static_cast<int>(on.device().index()), kernel};
}

}  // namespace

bool are_units_refused(const at::TensorBase& on, const char* kernel) {
  Refusals& all = refusals();
  const std::lock_guard lock(all.mutex);
  return all.kernels.contains(refusal_of(on, kernel));
}

void refuse_units(const at::TensorBase& on,
                  const char* kernel,
                  const runtime::Error& why) {
  Refusals& all = refusals();
  {
    const std::lock_guard lock(all.mutex);
    if (!all.kernels.insert(refusal_of(on, kernel)).second) {
      return;
    }
  }
  const std::string text = why.what();
  TORCH_WARN("opencl: ",
             on.device(),
             " refuses ",
             kernel,
             ", which uses its matrix units; another kernel serves. ",
             text.substr(0, text.find("\nsource:")));
}

UnitShape shape_of(MatrixUnits units) {
  switch (units) {
    case MatrixUnits::kIntel8:
      return {8, 8, 8};
    case MatrixUnits::kIntel16:
      return {16, 8, 16};
    default:
      return {32, 16, 16};
  }
}

MatrixUnits emulated_units() {
  if (!aten::has_solver_settings.load(std::memory_order_relaxed)) {
    return MatrixUnits::kNone;
  }
  constexpr std::string_view kPrefix = "units_";
  const std::string only = aten::solver_settings().only;
  if (!only.starts_with(kPrefix)) {
    return MatrixUnits::kNone;
  }
  const std::string_view name = std::string_view(only)
                                    .substr(0, only.find("_tile_"))
                                    .substr(kPrefix.size());
  for (const auto& [known, units] : kNames) {
    if (name == known) {
      return units;
    }
  }
  return MatrixUnits::kNone;
}

MatrixUnits matrix_units_of(const at::TensorBase& on, at::ScalarType dtype) {
  static std::mutex mutex;
  static std::map<std::pair<int, at::ScalarType>, MatrixUnits> known;
  if (!runtime::config().matrix_units) {
    return MatrixUnits::kNone;
  }
  const std::pair key{static_cast<int>(on.device().index()), dtype};
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(key); found != known.end()) {
    return found->second;
  }
  const std::vector<MatrixUnits> asked = candidates(aten::device_of(on).info());
  // A capture cannot wait for the comparison.
  if (!asked.empty() && aten::queue_of(on).capturing() != nullptr) {
    return MatrixUnits::kNone;
  }
  MatrixUnits found = MatrixUnits::kNone;
  for (const MatrixUnits units : asked) {
    if (multiplies(on, dtype, units)) {
      found = units;
      break;
    }
  }
  known.emplace(key, found);
  return found;
}

}  // namespace torch_opencl::ops
