// How dense ops choose among their algorithms. A problem is plain values; a
// solver says whether it supports one and whether it is expected to be the
// fastest. What is known of the device (tuning.h) goes before expectations.
// Where solvers are measured, all that support a problem are, at its first call
// on a device; the fastest is remembered in memory and on disk.
#pragma once

#include "launch.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace torch_opencl::aten {

// `Arguments` are the tensors a family's solvers work on.
template <class Problem, class Arguments>
struct Solver {
  using Predicate = bool (*)(const Problem&, const runtime::DeviceInfo&);

  const char* name;
  Predicate supports;      // computes the right result
  Predicate is_preferred;  // where supported; nullptr: everywhere
  void (*run)(const Problem& problem, const Arguments& arguments);
};

// Ordered best first, and ending with one that supports everything.
template <class Problem, class Arguments>
struct SolverFamily {
  const char* name;
  std::span<const Solver<Problem, Arguments>> solvers;
};

struct SolverSettings {
  bool measures = false;  // torch.backends.opencl.benchmark
  std::string only;       // the solver to take wherever it is supported
};
SolverSettings solver_settings();
void set_solver_settings(const SolverSettings& settings);
// False while the settings are the initial ones.
extern std::atomic<bool> has_solver_settings;

struct SolverMeasurement {
  int device;
  std::string problem;
  std::string fastest;
  // Solver and seconds; empty where the choice was on disk.
  std::vector<std::pair<std::string, double>> seconds;
};
// What this process has measured, or found on disk, in that order.
std::vector<SolverMeasurement> solver_measurements();

// Index of the fastest of `names` for `problem` on the device of `on`: what is
// remembered, else what is measured by `run(i)`, which is called several times.
// Nothing where `run` is empty and nothing is remembered.
std::optional<size_t> fastest_solver(const at::TensorBase& on,
                                     const std::string& problem,
                                     const std::vector<std::string>& names,
                                     const std::function<void(size_t)>& run);

// Whether solvers may be measured for a call. A capture would keep the launches
// of all of them.
inline bool can_measure(const at::TensorBase& on, bool can_repeat) {
  return can_repeat && queue_of(on).capturing() == nullptr;
}

// What names a problem where choices are kept.
template <class Problem, class Arguments>
std::string key_of(const SolverFamily<Problem, Arguments>& family,
                   const Problem& problem) {
  return family.name + (": " + problem.text());
}

// What is known to be the fastest for this on the device; empty: nothing.
inline std::string known_choice(const runtime::DeviceInfo& device,
                                const std::string& problem) {
  const auto& choices = device.tuning->choices;
  const auto found = choices.find(problem);
  return found == choices.end() ? "" : found->second;
}

// The one that is known to be the fastest, else the first that is preferred.
template <class Problem, class Arguments>
const Solver<Problem, Arguments>& select(
    const SolverFamily<Problem, Arguments>& family,
    const Problem& problem,
    const runtime::DeviceInfo& device) {
  if (!device.tuning->choices.empty()) {
    const std::string known = known_choice(device, key_of(family, problem));
    for (const auto& solver : family.solvers) {
      if (solver.name == known && solver.supports(problem, device)) {
        return solver;
      }
    }
  }
  for (const auto& solver : family.solvers) {
    if (solver.supports(problem, device) &&
        (solver.is_preferred == nullptr ||
         solver.is_preferred(problem, device))) {
      return solver;
    }
  }
  TORCH_INTERNAL_ASSERT(false, "no solver is preferred");
}

template <class Problem, class Arguments>
const Solver<Problem, Arguments>& select_by_settings(
    const SolverFamily<Problem, Arguments>& family,
    const Problem& problem,
    const Arguments& arguments,
    const at::TensorBase& on,
    bool can_repeat) {
  const SolverSettings settings = solver_settings();
  const runtime::DeviceInfo& device = aten::device_of(on).info();
  std::vector<const Solver<Problem, Arguments>*> supported;
  std::vector<std::string> names;
  for (const auto& solver : family.solvers) {
    if (solver.supports(problem, device)) {
      if (solver.name == settings.only) {
        return solver;
      }
      supported.push_back(&solver);
      names.emplace_back(solver.name);
    }
  }
  if (!settings.measures || supported.size() < 2) {
    return select(family, problem, device);
  }
  std::function<void(size_t)> run;
  if (can_measure(on, can_repeat)) {
    run = [&](size_t i) { supported[i]->run(problem, arguments); };
  }
  const std::optional<size_t> fastest =
      fastest_solver(on, key_of(family, problem), names, run);
  return fastest ? *supported[*fastest] : select(family, problem, device);
}

// Runs the family's best solver on the device of `on`. `can_repeat` tells that
// running one twice gives the same as once, so that they may be measured.
template <class Problem, class Arguments>
void solve(const SolverFamily<Problem, Arguments>& family,
           const Problem& problem,
           const Arguments& arguments,
           const at::TensorBase& on,
           bool can_repeat = true) {
  const auto& solver =
      has_solver_settings.load(std::memory_order_relaxed)
          ? select_by_settings(family, problem, arguments, on, can_repeat)
          : select(family, problem, aten::device_of(on).info());
  solver.run(problem, arguments);
}

}  // namespace torch_opencl::aten
