// Fourier transforms by VkFFT: kernels that it writes for one problem, built by
// our program cache and enqueued on our queues.
#pragma once

#include "queue.h"

#include <array>
#include <compare>
#include <cstdint>
#include <memory>

namespace torch_opencl::runtime {

enum class FftKind : uint8_t { kComplex, kFromReal, kToReal };

// A transform of `batch` contiguous arrays. What is real has sizes[0] elements
// in its innermost dimension, its half spectrum sizes[0] / 2 + 1.
struct FftProblem {
  FftKind kind = FftKind::kComplex;
  bool is_forward = true;  // of kComplex; the others go one way
  bool is_double = false;
  bool is_in_place = false;  // of kComplex
  // Inverse transforms are divided by the number of elements.
  bool normalizes = false;
  // The innermost dimension is not transformed; of kComplex.
  bool skips_innermost = false;
  uint8_t dimensions = 1;
  std::array<int64_t, 3> sizes{1, 1, 1};  // innermost first
  int64_t batch = 1;
  bool is_large = false;  // 64-bit offsets of elements

  auto operator<=>(const FftProblem&) const = default;
};

// Lengths of primes up to 13. VkFFT's kernels for others, Bluestein's
// convolution, crash the compiler of Intel's driver for CPUs.
bool has_fft_radixes(int64_t length);

// False where the module was built without VkFFT's header.
bool has_fft();

class FftPlan {
 public:
  virtual ~FftPlan() = default;
  // Byte offsets are those of the views, whose elements have `in_bytes` and
  // `out_bytes`. kToReal overwrites its input. In place, `out` is transformed.
  virtual void enqueue(Queue& queue,
                       const BufferView& in,
                       size_t in_bytes,
                       const BufferView& out,
                       size_t out_bytes) = 0;
  // Of tables and temporaries on the device.
  virtual size_t bytes() const = 0;
};

// The plan of a queue, made at its first use: that compiles and waits. Null for
// other lengths, and problems that VkFFT does not take. A bounded number is
// kept, those used last.
std::shared_ptr<FftPlan> fft_plan(Queue& queue, const FftProblem& problem);

}  // namespace torch_opencl::runtime
