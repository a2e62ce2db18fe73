// The units of GPUs that multiply small matrices of 16-bit numbers.
#pragma once

#include "../../cpp/aten/launch.h"
#include "../../cpp/runtime/error.h"
#include "../common/large_registers.h"
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

// What torch.backends.opencl.solver asks for, to be emulated: "units_sm_80",
// "units_intel_8_tile_64x64"; names are those of the kinds. kNone without one.
MatrixUnits emulated_units();

// Kernels by units that the device has refused, by name: others serve. The
// first refusal warns.
bool are_units_refused(const at::TensorBase& on, const char* kernel);
void refuse_units(const at::TensorBase& on,
                  const char* kernel,
                  const runtime::Error& why);

// Calls `launch`, of a kernel by units. False where the driver's compiler or
// the device refuses it.
template <class Launch>
bool try_units(const at::TensorBase& on,
               const char* kernel,
               const Launch& launch) {
  if (are_units_refused(on, kernel)) {
    return false;
  }
  try {
    launch();
    return true;
  } catch (const runtime::BuildError& error) {
    refuse_units(on, kernel, error);
  } catch (const runtime::OpenCLError& error) {
    if (error.code != CL_OUT_OF_RESOURCES &&
        error.code != CL_INVALID_WORK_GROUP_SIZE) {
      throw;
    }
    refuse_units(on, kernel, error);
  }
  return false;
}

}  // namespace torch_opencl::ops
