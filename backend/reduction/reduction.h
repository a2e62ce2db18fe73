// The reduction engine: "execute this TensorIterator" with one accumulator.
#pragma once

#include "../pointwise/pointwise.h"

namespace torch_opencl::ops {

constexpr int kMaxReductionInputs = 4;
constexpr int kMaxReductionOutputs = 4;

// What becomes of complex inputs. kHost: they do not come, ATen's host function
// makes real ones of them.
enum class Complex { kNone, kParts, kMagnitudes, kHost, kNumbers };

// A row of the reduction table (backend/reduction/ops.py).
struct ReductionOp {
  const char* name;
  const char* state;  // C type of the accumulator
  const char* identity;
  const char* step;     // of `state`, `x`, `index`
  const char* combine;  // of `a`, `b`
  // Of `state`, `count`; one an output.
  const char* results[kMaxReductionOutputs];
  const char* scalars;
  bool vectorizable = false;  // holds for vectors as well, element by element
  // Of two values, where `state` is one of the values and its place.
  const char* extreme = "";
  bool sums = false;       // `combine` is a sum of compute_t
  bool moments = false;    // `state` is a welford_t of the elements
  bool of_floats = false;  // not of integers, nor into them
  Complex complex = Complex::kNone;
  // Of kNumbers: identity, step and combination.
  const char* complex_numbers[3] = {"", "", ""};
  // The rest is for kernels of users. Inputs are not converted to compute_t
  // where `keeps_dtypes`.
  const char* inputs = "x";
  const char* preamble = "";  // defines what the expressions use
  bool keeps_dtypes = false;
  int64_t state_bytes = 32;  // at least sizeof(state)
};

extern const ReductionOp reduction_ops[];

// Reduces the iterator's inputs into its outputs. The reduced dimensions are
// those along which the outputs do not move. `compute` is the dtype of the
// accumulator, where it is not the input's.
void reduce(at::TensorIteratorBase& iter,
            const ReductionOp& op,
            c10::ArrayRef<at::Scalar> scalars,
            std::optional<at::ScalarType> compute = std::nullopt);

// Raises where an op of the table has no kernel for the dtypes.
void check_dtypes(const at::TensorIteratorBase& iter, const ReductionOp& op);

// A DispatchStub's kernel behind one table row.
template <int kRow, class Function>
struct ReductionStub;
template <int kRow, class Iterator, class... P>
struct ReductionStub<kRow, void (*)(Iterator&, P...)> {
  static void call(Iterator& iter, P... arguments) {
    check_dtypes(iter, reduction_ops[kRow]);
    std::vector<at::Scalar> scalars;
    (append_scalar(scalars, arguments), ...);
    reduce(iter, reduction_ops[kRow], scalars);
  }
};

}  // namespace torch_opencl::ops
