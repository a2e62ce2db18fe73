// The units of GPUs that multiply small matrices of 16-bit numbers.
#pragma once

#include "../../cpp/aten/launch.h"
#include "product_choice.h"

namespace torch_opencl::ops {

// Those of the device for operands of `dtype`, kNone where it has none that are
// known. The first call for a device that may have them multiplies with them,
// on Intel's with large registers, and compares: drivers whose compiler does
// not know them, or whose results differ, have none.
MatrixUnits matrix_units_of(const at::TensorBase& on, at::ScalarType dtype);

// A wave's work-items, and rows and columns of what it multiplies at once
// (matrix_units.clh).
struct UnitShape {
  int wave;
  int rows;
  int columns;
};
UnitShape shape_of(MatrixUnits units);

constexpr bool is_intel(MatrixUnits units) {
  return units == MatrixUnits::kIntel8 || units == MatrixUnits::kIntel16;
}

// Of Intel's compiler: 256 registers instead of 128, for half as many threads.
constexpr const char* kLargeRegisters = "-cl-intel-256-GRF-per-thread";

// What torch.backends.opencl.solver asks for, to be emulated: "units_sm_80",
// "units_intel_8_tile_64x64"; names are those of the kinds. kNone without one.
MatrixUnits emulated_units();

}  // namespace torch_opencl::ops
