// How dense ops choose among their algorithms: a problem is plain values, a
// solver says whether it applies and what workspace it wants, and the first
// applicable solver of a family's list is taken. Selection touches no device.
#pragma once

#include "../runtime/device.h"

#include <c10/util/Exception.h>

#include <cstddef>
#include <span>

namespace torch_opencl::aten {

// `Arguments` are the tensors a family's solvers work on.
template <class Problem, class Arguments>
struct Solver {
  const char* name;
  bool (*applies)(const Problem& problem, const runtime::DeviceInfo& device);
  void (*run)(const Problem& problem, const Arguments& arguments);
};

// The preferred solver: lists are ordered best first and end with one that
// always applies. A measured choice would replace the first match here.
template <class Problem, class Arguments>
const Solver<Problem, Arguments>& select(
    std::span<const Solver<Problem, Arguments>> solvers,
    const Problem& problem,
    const runtime::DeviceInfo& device) {
  for (const Solver<Problem, Arguments>& solver : solvers) {
    if (solver.applies(problem, device)) {
      return solver;
    }
  }
  TORCH_INTERNAL_ASSERT(false, "no solver applies");
}

}  // namespace torch_opencl::aten
