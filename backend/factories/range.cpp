// arange, range, linspace, logspace, eye, tril, triu and their indices.
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/integers.h"
#include "../common/kernel_text.h"
#include "kernel_sources.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye_ops.h>
#include <ATen/ops/linspace_ops.h>
#include <ATen/ops/logspace_ops.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/range_ops.h>
#include <ATen/ops/tril_indices_ops.h>
#include <ATen/ops/tril_meta.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_indices_ops.h>
#include <ATen/ops/triu_meta.h>
#include <ATen/ops/triu_ops.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cmath>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Scalar;
using at::Tensor;

// Runs `write` on `out`, or on a contiguous tensor of its sizes that is copied
// to it, as where `out` may not be written yet.
template <class Write>
void through_contiguous(const Tensor& out,
                        const Write& write,
                        bool is_writable = true) {
  if (out.numel() == 0) {
    return;
  }
  if (is_writable && out.is_contiguous()) {
    write(out);
    return;
  }
  const Tensor dense = at::empty_like(out, at::MemoryFormat::Contiguous);
  write(dense);
  out.copy_(dense);
}

void check_bounds(double first, double last, double by) {
  TORCH_CHECK(by > 0 || by < 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(first) && std::isfinite(last),
              "unsupported range: ",
              first,
              " -> ",
              last);
  TORCH_CHECK((by > 0 && last >= first) || (by < 0 && last <= first),
              "upper bound and lower bound inconsistent with step sign");
}

// In integer arithmetic for an int64 result, as ATen does: a fractional step
// of one is zero.
int64_t arange_size(const Scalar& start,
                    const Scalar& end,
                    const Scalar& step,
                    at::ScalarType type) {
  const double first = start.toDouble();
  const double last = end.toDouble();
  const double by = step.toDouble();
  TORCH_CHECK_VALUE(type != at::kLong || by == 0 || step.toLong() != 0,
                    "step must be nonzero");
  check_bounds(first, last, by);
  double size = 0;
  if (type == at::kLong) {
    // Exact beyond 2^53.
    const int64_t stride = step.toLong();
    const int64_t sign = stride > 0 ? 1 : -1;
    size = std::ceil(static_cast<double>(
        (end.toLong() - start.toLong() + stride - sign) / stride));
  } else {
    size = std::ceil((last - first) / by);
  }
  TORCH_CHECK(size >= 0 && size <= static_cast<double>(INT64_MAX),
              "invalid size, possible overflow?");
  return static_cast<int64_t>(size);
}

void fill_range(const Scalar& start, const Scalar& step, const Tensor& out) {
  const at::ScalarType type = out.scalar_type();
  const bool is_wide =
      type == at::kFloat && aten::device_of(out).info().has_fp64;
  const at::ScalarType compute = is_wide ? at::kDouble : compute_type(type);
  // Floats become integers of 64 bits, which wrap around in narrower ones.
  const auto argument = [&](const Scalar& value) {
    const bool truncates =
        value.isFloatingPoint() && !at::isFloatingType(compute);
    return scalar_argument(truncates ? Scalar(value.toLong()) : value, compute);
  };
  through_contiguous(out, [&](const Tensor& dense) {
    launch(dense,
           sources::range,
           "arange",
           {{"DTYPE", dtype_of(dense)}, {"IS_WIDE", is_wide}},
           aten::range(dense.numel(), 64),
           arg(dense),
           static_cast<uint64_t>(dense.numel()),
           argument(start),
           argument(step));
  });
}

Tensor& arange_out(const Scalar& start,
                   const Scalar& end,
                   const Scalar& step,
                   Tensor& out) {
  const int64_t size = arange_size(start, end, step, out.scalar_type());
  if (out.numel() != size) {
    if (out.numel() > 0) {
      TORCH_WARN("The number of elements in the out tensor of shape ",
                 out.sizes(),
                 " is ",
                 out.numel(),
                 " which does not match the computed number of elements ",
                 size,
                 ". Note that this may occur as a result of rounding error. "
                 "The out tensor will be resized to a tensor of shape (",
                 size,
                 ",).");
    }
    out.resize_({size});
  }
  fill_range(start, step, out);
  return out;
}

// With its end, unlike arange.
Tensor& range_out(const Scalar& start,
                  const Scalar& end,
                  const Scalar& step,
                  Tensor& out) {
  double first = start.toDouble();
  double last = end.toDouble();
  double by = step.toDouble();
  if (!out.is_floating_point()) {
    first = std::trunc(first);
    last = std::trunc(last);
    by = std::trunc(by);
  }
  check_bounds(first, last, by);
  // In the type that torch's CPU adds up: float for the half types.
  const auto size_in = [&](auto zero) {
    using T = decltype(zero);
    return static_cast<int64_t>((static_cast<T>(last) - static_cast<T>(first)) /
                                    static_cast<T>(by) +
                                1);
  };
  const int64_t size = at::isReducedFloatingType(out.scalar_type())
                           ? size_in(0.0f)
                           : size_in(0.0);
  if (out.numel() != size) {
    out.resize_({size});
  }
  fill_range(start, step, out);
  return out;
}

// Raises where the dtype does not hold them.
void check_ends(const Scalar& start, const Scalar& end, at::ScalarType type) {
  AT_DISPATCH_V2(type,
                 "linspace",
                 AT_WRAP([&] {
                   start.to<scalar_t>();
                   end.to<scalar_t>();
                 }),
                 AT_EXPAND(AT_FLOATING_TYPES),
                 at::kHalf,
                 at::kBFloat16);
}

Tensor& linspace_out(const Scalar& start,
                     const Scalar& end,
                     int64_t steps,
                     Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) {
    out.resize_({steps});
  }
  if (steps == 1) {
    return out.fill_(start);
  }
  const at::ScalarType compute = compute_type(out.scalar_type());
  if (!at::isFloatingType(compute)) {
    // Integers round towards zero from the exact line: computed on the host.
    Tensor host = at::empty_like(out, out.options().device(at::kCPU));
    at::_ops::linspace_out::call(start, end, steps, host);
    return out.copy_(host);
  }
  check_ends(start, end, out.scalar_type());
  const double step = (end.toDouble() - start.toDouble()) /
                      static_cast<double>(std::max<int64_t>(steps - 1, 1));
  through_contiguous(out, [&](const Tensor& dense) {
    launch(dense,
           sources::range,
           "linspace",
           {{"DTYPE", dtype_of(dense)}},
           aten::range(steps, 64),
           arg(dense),
           static_cast<uint64_t>(steps),
           scalar_argument(start, compute),
           scalar_argument(end, compute),
           scalar_argument(step, compute));
  });
  return out;
}

// Exponents in the widest type: a power's relative error is its exponent's
// absolute one, and integers round towards zero.
Tensor& logspace_out(const Scalar& start,
                     const Scalar& end,
                     int64_t steps,
                     double base,
                     Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) {
    out.resize_({steps});
  }
  if (steps == 0) {
    return out;
  }
  const bool is_integral = !out.is_floating_point();
  if (is_integral && steps > 1) {
    // As for linspace: on the host.
    Tensor host = at::empty_like(out, out.options().device(at::kCPU));
    at::_ops::logspace_out::call(start, end, steps, base, host);
    return out.copy_(host);
  }
  if (steps == 1) {
    return out.fill_(std::pow(base, start.toDouble()));
  }
  check_ends(start, end, out.scalar_type());
  const at::ScalarType type =
      aten::device_of(out).info().has_fp64 ? at::kDouble : at::kFloat;
  Tensor exponents = at::empty({steps}, out.options().dtype(type));
  linspace_out(start, end, steps, exponents);
  return out.copy_(at::pow(base, exponents).view_as(out));
}

Tensor& eye_m_out(int64_t n, int64_t m, Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  out.resize_({n, m});
  out.zero_();
  if (out.numel() > 0) {
    out.diagonal().fill_(1);
  }
  return out;
}

Tensor& eye_out(int64_t n, Tensor& out) {
  return eye_m_out(n, n, out);
}

// Elements of a row that a work-item of a CPU writes.
constexpr int64_t kTriangleRun = 4096;

void triangle(const Tensor& self,
              int64_t diagonal,
              const Tensor& out,
              bool upper) {
  if (out.numel() == 0) {
    return;
  }
  diagonal = std::clamp(diagonal, -self.size(-2), self.size(-1));
  if (out.is_complex()) {
    for (const int64_t part : {0, 1}) {
      triangle(at::view_as_real(self).select(-1, part),
               diagonal,
               at::view_as_real(out).select(-1, part),
               upper);
    }
    return;
  }
  const Tensor input =
      self.dim() <= 3 ? self : self.contiguous();  // copy: one batch dimension
  const int64_t batch_stride =
      self.dim() == 2 ? 0
                      : (self.dim() == 3 ? input.stride(0)
                                         : input.size(-1) * input.size(-2));
  const auto write = [&](const Tensor& dense) {
    const bool is_cpu = aten::device_of(dense).is_cpu();
    const int64_t rows = dense.numel() / dense.size(-1);
    const int64_t run = is_cpu ? kTriangleRun : 1;
    const int64_t group = is_cpu ? 1 : 64;
    launch(dense,
           sources::range,
           "triangle",
           {{"DTYPE", dtype_of(dense)}, {"RUN", run}, {"WG_SIZE", group}},
           aten::range(ceil_div(dense.size(-1), run), rows, group, 1),
           arg(dense),
           arg_in(input),
           rows,
           dense.size(-2),
           dense.size(-1),
           input.stride(-2),
           input.stride(-1),
           batch_stride,
           diagonal,
           static_cast<int32_t>(upper));
  };
  // The kernel may not read what it has already written.
  through_contiguous(
      out, write, !out.is_same(self) || input.strides() == out.strides());
}

struct tril_out : at::meta::structured_tril {
  void impl(const Tensor& self, int64_t diagonal, const Tensor& out) {
    triangle(self, diagonal, out, false);
  }
};

struct triu_out : at::meta::structured_triu {
  void impl(const Tensor& self, int64_t diagonal, const Tensor& out) {
    triangle(self, diagonal, out, true);
  }
};

using MaybeType = std::optional<at::ScalarType>;
using MaybeLayout = std::optional<at::Layout>;
using MaybeDevice = std::optional<at::Device>;

template <bool is_upper>
Tensor triangle_indices(int64_t rows,
                        int64_t columns,
                        int64_t offset,
                        MaybeType dtype,
                        MaybeLayout layout,
                        MaybeDevice device,
                        std::optional<bool> pin_memory) {
  const auto options = at::TensorOptions()
                           .dtype(dtype.value_or(at::kLong))
                           .layout(layout)
                           .device(device)
                           .pinned_memory(pin_memory);
  at::native::check_args(rows, columns, options.layout());
  const at::ScalarType type = options.dtype().toScalarType();
  check_implemented(type == at::kInt || type == at::kLong,
                    is_upper ? "triu_indices" : "tril_indices",
                    type);
  // The upper triangle is what is not below it.
  offset = std::clamp(offset, -rows, columns) - is_upper;
  const int64_t below = at::native::get_tril_size(rows, columns, offset);
  // There may be more than 2^64 elements below.
  const int64_t size =
      is_upper ? static_cast<int64_t>(static_cast<uint64_t>(rows) * columns -
                                      static_cast<uint64_t>(below))
               : below;
  Tensor out = at::empty({2, size}, options);
  if (size > 0) {
    launch(out,
           sources::range,
           "triangle_indices",
           {{"DTYPE", dtype_of(out)}},
           aten::range(size, 64),
           arg(out),
           static_cast<uint64_t>(size),
           rows,
           columns,
           offset,
           static_cast<int32_t>(is_upper));
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("arange.start_out",
         &WithFallback<at::_ops::arange_start_out, &arange_out>::call);
  m.impl("linspace.out",
         &WithFallback<at::_ops::linspace_out, &linspace_out>::call);
  m.impl("logspace.out",
         &WithFallback<at::_ops::logspace_out, &logspace_out>::call);
  m.impl("range.out", &WithFallback<at::_ops::range_out, &range_out>::call);
  m.impl("tril_indices",
         &WithFallback<at::_ops::tril_indices, &triangle_indices<false>>::call);
  m.impl("triu_indices",
         &WithFallback<at::_ops::triu_indices, &triangle_indices<true>>::call);
  m.impl("eye.out",
         &WithFallback<at::_ops::eye_out, &eye_out, Numbers::kRealAndComplex>::
             call);
  m.impl("eye.m_out",
         &WithFallback<at::_ops::eye_m_out,
                       &eye_m_out,
                       Numbers::kRealAndComplex>::call);
  structured<tril_out, at::_ops::tril_out, Numbers::kRealAndComplex>(m);
  structured<triu_out, at::_ops::triu_out, Numbers::kRealAndComplex>(m);
}

}  // namespace torch_opencl::ops
