// _fft_c2c, _fft_r2c, _fft_c2r: VkFFT's transforms of contiguous arrays. What
// is transformed is moved innermost first; results keep that layout, as those
// of torch with MKL do.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "lines.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_fft_c2c_ops.h>
#include <ATen/ops/_fft_c2r_ops.h>
#include <ATen/ops/_fft_r2c_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;
using runtime::FftKind;
using runtime::FftProblem;

// torch's fft_norm_mode.
constexpr int64_t kByRootOfN = 1;
constexpr int64_t kByN = 2;

// The dimensions that are not transformed, then the others, each kind by
// falling strides; `last`, where there is one, stays the innermost.
std::vector<int64_t> innermost_order(const Tensor& self,
                                     IntArrayRef dim,
                                     std::optional<int64_t> last) {
  std::vector<int64_t> order(self.dim());
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](int64_t d) {
    return d == last                                           ? 2
           : std::find(dim.begin(), dim.end(), d) != dim.end() ? 1
                                                               : 0;
  };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return rank(a) != rank(b) ? rank(a) < rank(b)
                              : self.stride(a) > self.stride(b);
  });
  return order;
}

Tensor undo_order(const Tensor& tensor, const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    inverse[order[i]] = static_cast<int64_t>(i);
  }
  return tensor.permute(inverse);
}

std::vector<int64_t> wrapped(const Tensor& self, IntArrayRef dim) {
  std::vector<int64_t> result;
  for (const int64_t d : dim) {
    result.push_back(at::maybe_wrap_dim(d, self.dim()));
  }
  return result;
}

// Transforms of a tensor whose last `axes` dimensions are the transformed ones.
// False where VkFFT has no plan.
class Transforms {
 public:
  // `sizes` are those of the signal: of a half spectrum the whole one's.
  Transforms(IntArrayRef sizes, int64_t axes, bool is_double)
      : is_double_(is_double) {
    const size_t first = sizes.size() - axes;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (d < first) {
        batch_ *= sizes[d];
      } else if (sizes[d] != 1 || d + 1 == sizes.size()) {
        axes_.push_back(sizes[d]);
      }
    }
    // Of complex numbers an innermost dimension of one element is none.
    innermost_ = axes_;
    if (innermost_.size() > 1 && innermost_.back() == 1) {
      innermost_.pop_back();
    }
  }

  bool complex(const Tensor& in, const Tensor& out, bool forward) {
    if (innermost_.empty() || innermost_ == std::vector<int64_t>{1}) {
      if (!in.is_alias_of(out)) {
        Tensor(out).copy_(in);
      }
      return true;
    }
    if (!std::all_of(axes_.begin(), axes_.end(), &runtime::has_fft_radixes)) {
      return axis_by_axis(in, out, forward);
    }
    std::vector<int64_t> outer;
    FftProblem problem = innermost(innermost_, outer, forward);
    problem.is_in_place = in.is_alias_of(out);
    return run_fft(problem, in, out) &&
           outer_axes(outer, inner_of(problem), out, forward);
  }

  bool from_real(const Tensor& in, const Tensor& out) {
    std::vector<int64_t> outer;
    FftProblem problem = innermost(axes_, outer, true);
    problem.kind = FftKind::kFromReal;
    return run_fft(problem, in, out) &&
           outer_axes(outer, half_of(problem), out, true);
  }

  // Overwrites `in`. The last axis by itself: ahead of it, imaginary parts that
  // no real signal has are dropped, which VkFFT would mix into other lines.
  bool to_real(const Tensor& in, const Tensor& out) {
    const std::vector<int64_t> outer(axes_.begin(), axes_.end() - 1);
    FftProblem problem;
    problem.kind = FftKind::kToReal;
    problem.is_double = is_double_;
    problem.sizes = {axes_.back(), 1, 1};
    problem.batch = std::accumulate(
        outer.begin(), outer.end(), batch_, std::multiplies<int64_t>());
    if (!std::all_of(axes_.begin(), axes_.end(), &runtime::has_fft_radixes) ||
        !outer_axes(outer, half_of(problem), in, false)) {
      return false;
    }
    at::imag(in.select(-1, 0)).zero_();
    if (axes_.back() % 2 == 0) {
      at::imag(in.select(-1, in.size(-1) - 1)).zero_();
    }
    return run_fft(problem, in, out);
  }

 private:
  // The up to three innermost of the axes; `outer` are the others.
  FftProblem innermost(const std::vector<int64_t>& axes,
                       std::vector<int64_t>& outer,
                       bool forward) const {
    FftProblem problem;
    problem.is_forward = forward;
    problem.is_double = is_double_;
    const size_t count = std::min<size_t>(axes.size(), 3);
    problem.dimensions = static_cast<uint8_t>(count);
    for (size_t d = 0; d < count; ++d) {
      problem.sizes[d] = axes[axes.size() - 1 - d];
    }
    outer.assign(axes.begin(), axes.end() - count);
    problem.batch = std::accumulate(
        outer.begin(), outer.end(), batch_, std::multiplies<int64_t>());
    return problem;
  }

  static int64_t inner_of(const FftProblem& p) {
    return p.sizes[0] * p.sizes[1] * p.sizes[2];
  }
  static int64_t half_of(const FftProblem& p) {
    return (p.sizes[0] / 2 + 1) * p.sizes[1] * p.sizes[2];
  }

  // One after the other, in place, from the innermost of them.
  bool outer_axes(const std::vector<int64_t>& axes,
                  int64_t inner,
                  const Tensor& tensor,
                  bool forward) {
    int64_t batch = std::accumulate(
        axes.begin(), axes.end(), batch_, std::multiplies<int64_t>());
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      batch /= *axis;
      if (!runtime::has_fft_radixes(inner)) {
        // VkFFT would plan for the axis that it skips, too.
        const Tensor all = tensor.view({batch, *axis, inner});
        const Tensor result = transform_axis(all, 1, forward);
        if (!result.defined()) {
          return false;
        }
        all.copy_(result);
        inner *= *axis;
        continue;
      }
      FftProblem problem;
      problem.is_forward = forward;
      problem.is_double = is_double_;
      problem.is_in_place = true;
      problem.skips_innermost = inner != 1;
      problem.dimensions = inner == 1 ? 1 : 2;
      problem.sizes = {inner, *axis, 1};
      if (inner == 1) {
        problem.sizes = {*axis, 1, 1};
      }
      problem.batch = batch;
      if (!run_fft(problem, tensor, tensor)) {
        return false;
      }
      inner *= *axis;
    }
    return true;
  }

  // Each axis is made the innermost.
  bool axis_by_axis(const Tensor& in, const Tensor& out, bool forward) {
    std::vector<int64_t> shape{batch_};
    shape.insert(shape.end(), axes_.begin(), axes_.end());
    Tensor current = in.view(shape);
    for (int64_t d = 1; d < current.dim(); ++d) {
      current = transform_axis(current, d, forward);
      if (!current.defined()) {
        return false;
      }
    }
    out.view(shape).copy_(current);
    return true;
  }

  bool is_double_;
  int64_t batch_ = 1;
  std::vector<int64_t> axes_;
  std::vector<int64_t> innermost_;
};

void normalize(const Tensor& out, int64_t normalization, IntArrayRef signal) {
  if (normalization != kByRootOfN && normalization != kByN) {
    return;
  }
  double count = 1;
  for (const int64_t size : signal) {
    count *= static_cast<double>(size);
  }
  const double scale = 1 / (normalization == kByN ? count : std::sqrt(count));
  (out.is_complex() ? at::view_as_real(out) : out).mul_(scale);
}

std::vector<int64_t> signal_sizes(IntArrayRef sizes, IntArrayRef dim) {
  std::vector<int64_t> result;
  for (const int64_t d : dim) {
    result.push_back(sizes[d]);
  }
  return result;
}

bool is_double(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ||
         tensor.scalar_type() == at::kComplexDouble;
}

// Undefined where the CPU has to do it.
Tensor transform_complex(const Tensor& self,
                         IntArrayRef dims,
                         int64_t normalization,
                         bool forward) {
  const std::vector<int64_t> dim = wrapped(self, dims);
  const auto order = innermost_order(self, dim, std::nullopt);
  const Tensor ordered = self.permute(order).resolve_conj();
  const Tensor in = ordered.contiguous();  // copy: VkFFT's layout
  const Tensor out = at::empty(in.sizes(), in.options());
  if (in.numel() > 0) {
    Transforms transforms(
        in.sizes(), static_cast<int64_t>(dim.size()), is_double(in));
    if (!transforms.complex(in, out, forward)) {
      return {};
    }
    normalize(out, normalization, signal_sizes(self.sizes(), dim));
  }
  return undo_order(out, order);
}

at::ScalarType complex_type(const Tensor& self) {
  return at::toComplexType(self.scalar_type());
}

Tensor transform_from_real(const Tensor& self,
                           IntArrayRef dims,
                           int64_t normalization,
                           bool onesided) {
  const std::vector<int64_t> dim = wrapped(self, dims);
  const auto order = innermost_order(self, dim, dim.back());
  const Tensor permuted = self.permute(order);
  const auto axes = static_cast<int64_t>(dim.size());
  std::vector<int64_t> half = permuted.sizes().vec();
  half.back() = half.back() / 2 + 1;
  Tensor out;
  if (onesided) {
    const Tensor in = permuted.contiguous();  // copy: VkFFT's layout
    out = at::empty(half, in.options().dtype(complex_type(self)));
    Transforms transforms(in.sizes(), axes, is_double(in));
    if (out.numel() > 0 && in.size(-1) > 1 && transforms.from_real(in, out)) {
      normalize(out, normalization, signal_sizes(self.sizes(), dim));
      return undo_order(out, order);
    }
  }
  const Tensor whole =
      permuted.to(complex_type(self)).contiguous();  // copy: VkFFT's layout
  if (whole.numel() > 0) {
    Transforms transforms(whole.sizes(), axes, is_double(self));
    if (!transforms.complex(whole, whole, true)) {
      return {};
    }
    normalize(whole, normalization, signal_sizes(self.sizes(), dim));
  }
  return undo_order(
      onesided ? out.copy_(whole.narrow(-1, 0, half.back())) : whole, order);
}

// The spectrum of a real signal from its half.
Tensor whole_spectrum(const Tensor& half, int64_t size, int64_t axes) {
  std::vector<int64_t> sizes = half.sizes().vec();
  const int64_t known = sizes.back();
  sizes.back() = size;
  Tensor whole = at::empty(sizes, half.options());
  whole.narrow(-1, 0, known).copy_(half);
  if (size > known) {
    // X[-k] = conj(X[k]) in every transformed dimension.
    Tensor mirrored = half.narrow(-1, 1, size - known).flip(-1);
    for (int64_t d = half.dim() - axes; d < half.dim() - 1; ++d) {
      mirrored = mirrored.flip(d).roll(1, d);
    }
    whole.narrow(-1, known, size - known).copy_(mirrored.conj());
  }
  return whole;
}

Tensor transform_to_real(const Tensor& self,
                         IntArrayRef dims,
                         int64_t normalization,
                         int64_t last_size) {
  const std::vector<int64_t> dim = wrapped(self, dims);
  const auto order = innermost_order(self, dim, dim.back());
  const auto axes = static_cast<int64_t>(dim.size());
  // A copy in any case: it is overwritten.
  Tensor in = at::empty({0}, self.options());
  const Tensor permuted = self.permute(order);
  in.resize_(permuted.sizes());
  in.copy_(permuted);
  std::vector<int64_t> sizes = in.sizes().vec();
  sizes.back() = last_size;
  Tensor out = at::empty(
      sizes, self.options().dtype(at::toRealValueType(self.scalar_type())));
  if (out.numel() > 0) {
    Transforms transforms(sizes, axes, is_double(self));
    if (last_size < 2 || !transforms.to_real(in, out)) {
      in.copy_(permuted);
      const Tensor whole = whole_spectrum(in, last_size, axes);
      if (!transforms.complex(whole, whole, false)) {
        return {};
      }
      out.copy_(at::real(whole));
    }
    std::vector<int64_t> signal = signal_sizes(self.sizes(), dim);
    signal.back() = last_size;
    normalize(out, normalization, signal);
  }
  return undo_order(out, order);
}

bool runs_on_device(const Tensor& self) {
  const at::ScalarType real = at::toRealValueType(self.scalar_type());
  return runtime::has_fft() && is_supported(self, Numbers::kRealAndComplex) &&
         (real == at::kFloat || real == at::kDouble);
}

Tensor fft_c2c(const Tensor& self,
               IntArrayRef dim,
               int64_t normalization,
               bool forward) {
  TORCH_CHECK(self.is_complex());
  if (dim.empty()) {
    return self.clone();
  }
  if (runs_on_device(self)) {
    Tensor out = transform_complex(self, dim, normalization, forward);
    if (out.defined()) {
      return out;
    }
  }
  return at::native::call_fallback_fn<&cpu_fallback, at::_ops::_fft_c2c>::call(
      self, dim, normalization, forward);
}

Tensor fft_r2c(const Tensor& self,
               IntArrayRef dim,
               int64_t normalization,
               bool onesided) {
  TORCH_CHECK(self.is_floating_point(),
              "Only supports floating-point dtypes, but found: ",
              self.scalar_type());
  if (!dim.empty() && runs_on_device(self)) {
    Tensor out = transform_from_real(self, dim, normalization, onesided);
    if (out.defined()) {
      return out;
    }
  }
  return at::native::call_fallback_fn<&cpu_fallback, at::_ops::_fft_r2c>::call(
      self, dim, normalization, onesided);
}

Tensor fft_c2r(const Tensor& self,
               IntArrayRef dim,
               int64_t normalization,
               int64_t last_dim_size) {
  TORCH_CHECK(self.is_complex());
  if (!dim.empty() && runs_on_device(self)) {
    TORCH_CHECK(
        last_dim_size > 0 && self.size(dim.back()) == last_dim_size / 2 + 1,
        "_fft_c2r: expected ",
        last_dim_size / 2 + 1,
        " elements along the last dimension for a signal of ",
        last_dim_size,
        ", but got ",
        self.size(dim.back()));
    Tensor out = transform_to_real(self, dim, normalization, last_dim_size);
    if (out.defined()) {
      return out;
    }
  }
  return at::native::call_fallback_fn<&cpu_fallback, at::_ops::_fft_c2r>::call(
      self, dim, normalization, last_dim_size);
}

Tensor& copied_to(Tensor& out, const Tensor& result) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

Tensor& fft_c2c_out(const Tensor& self,
                    IntArrayRef dim,
                    int64_t normalization,
                    bool forward,
                    Tensor& out) {
  return copied_to(out, fft_c2c(self, dim, normalization, forward));
}

Tensor& fft_r2c_out(const Tensor& self,
                    IntArrayRef dim,
                    int64_t normalization,
                    bool onesided,
                    Tensor& out) {
  return copied_to(out, fft_r2c(self, dim, normalization, onesided));
}

Tensor& fft_c2r_out(const Tensor& self,
                    IntArrayRef dim,
                    int64_t normalization,
                    int64_t last_dim_size,
                    Tensor& out) {
  return copied_to(out, fft_c2r(self, dim, normalization, last_dim_size));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fft_c2c", TORCH_FN(fft_c2c));
  m.impl("_fft_c2c.out", TORCH_FN(fft_c2c_out));
  m.impl("_fft_r2c", TORCH_FN(fft_r2c));
  m.impl("_fft_r2c.out", TORCH_FN(fft_r2c_out));
  m.impl("_fft_c2r", TORCH_FN(fft_c2r));
  m.impl("_fft_c2r.out", TORCH_FN(fft_c2r_out));
}

}  // namespace torch_opencl::ops
