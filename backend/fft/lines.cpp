// Lengths that VkFFT has no radixes for: short lines are multiplied by the
// matrix of the transform, long ones are convolved with a chirp (Bluestein), in
// float64 where the device has it.
#include "lines.h"

#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/no_autocast.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <complex>
#include <list>
#include <mutex>
#include <numbers>
#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Longest line for which the matrix is faster, and not much larger.
constexpr int64_t kLongestOfMatrix = 64;

bool run_plan(const Tensor& lines,
              const Tensor& out,
              bool forward,
              bool divides) {
  const int64_t size = lines.size(-1);
  runtime::FftProblem problem;
  problem.is_forward = forward;
  problem.is_double = lines.scalar_type() == at::kComplexDouble;
  problem.is_in_place = lines.is_alias_of(out);
  problem.normalizes = divides;
  problem.sizes = {size, 1, 1};
  problem.batch = lines.numel() / size;
  return run_fft(problem, lines, out);
}

// exp(sign * 2 pi i * numerator / denominator)
c10::complex<double> root_of_unity(int64_t numerator,
                                   int64_t denominator,
                                   double sign) {
  const double angle = sign * 2 * std::numbers::pi *
                       static_cast<double>(numerator % denominator) /
                       static_cast<double>(denominator);
  return {std::cos(angle), std::sin(angle)};
}

Tensor host_numbers(at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions().dtype(at::kComplexDouble));
}

// What lines are multiplied by, on the device.
struct Tables {
  Tensor matrix;
  Tensor chirp;     // exp(-+ pi i k^2 / n)
  Tensor spectrum;  // of its conjugate, continued to both sides
};

Tensor matrix_of(int64_t size, double sign, const Tensor& like) {
  const Tensor host = host_numbers({size, size});
  auto* numbers = host.mutable_data_ptr<c10::complex<double>>();
  for (int64_t i = 0; i < size * size; ++i) {
    numbers[i] = root_of_unity(i / size * (i % size), size, sign);
  }
  return host.to(like.options());
}

Tables chirp_of(int64_t size, int64_t padded, double sign, const Tensor& like) {
  const Tensor chirp = host_numbers({size});
  const Tensor convolved = host_numbers({padded}).zero_();
  auto* numbers = chirp.mutable_data_ptr<c10::complex<double>>();
  auto* both = convolved.mutable_data_ptr<c10::complex<double>>();
  for (int64_t k = 0; k < size; ++k) {
    // k^2 modulo 2n: the square itself would lose the angle's bits.
    numbers[k] = root_of_unity(k * k % (2 * size), 2 * size, sign);
    both[k] = std::conj(numbers[k]);
    both[(padded - k) % padded] = both[k];
  }
  Tables tables;
  tables.chirp = chirp.to(like.options());
  tables.spectrum = convolved.to(like.options());
  if (!run_plan(tables.spectrum, tables.spectrum, true, false)) {
    return {};
  }
  return tables;
}

// Tables of the queues' last problems.
class TableCache {
 public:
  using Key = std::tuple<runtime::Queue*, int64_t, bool, at::ScalarType>;

  template <class Make>
  Tables find(const Key& key, const Make& make) {
    const std::lock_guard lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->first == key) {
        entries_.splice(entries_.begin(), entries_, entry);
        return entry->second;
      }
    }
    entries_.emplace_front(key, make());
    if (entries_.size() > kMost) {
      entries_.pop_back();
    }
    return entries_.front().second;
  }

 private:
  static constexpr size_t kMost = 32;
  std::mutex mutex_;
  std::list<std::pair<Key, Tables>> entries_;
};

TableCache& cache() {
  static auto* instance = new TableCache();
  return *instance;
}

Tensor by_matrix(const Tensor& lines, bool forward) {
  const int64_t size = lines.size(-1);
  const Tables tables =
      cache().find({&queue_of(lines), size, forward, lines.scalar_type()}, [&] {
        return Tables{matrix_of(size, forward ? -1 : 1, lines), {}, {}};
      });
  const aten::NoAutocast guard;
  return at::mm(lines.view({-1, size}), tables.matrix).view(lines.sizes());
}

Tensor by_chirp(const Tensor& lines, bool forward) {
  const int64_t size = lines.size(-1);
  int64_t padded = 1;
  while (padded < 2 * size - 1) {
    padded *= 2;
  }
  const at::ScalarType type = aten::device_of(lines).info().has_fp64
                                  ? at::kComplexDouble
                                  : lines.scalar_type();
  const Tensor work =
      at::zeros({lines.numel() / size, padded}, lines.options().dtype(type));
  const Tables tables = cache().find(
      {&queue_of(lines), size, forward, type},
      [&] { return chirp_of(size, padded, forward ? -1 : 1, work); });
  if (!tables.chirp.defined()) {
    return {};
  }
  Tensor signal = work.narrow(1, 0, size);
  signal.copy_(lines.view({-1, size}));
  signal.mul_(tables.chirp);
  if (!run_plan(work, work, true, false)) {
    return {};
  }
  Tensor(work).mul_(tables.spectrum);
  if (!run_plan(work, work, false, true)) {
    return {};
  }
  return signal.mul_(tables.chirp).to(lines.scalar_type()).view(lines.sizes());
}

}  // namespace

bool run_fft(runtime::FftProblem problem, const Tensor& in, const Tensor& out) {
  runtime::Queue& queue = queue_of(in);
  const bool is_to_real = problem.kind == runtime::FftKind::kToReal;
  const BufferView source = is_to_real ? arg(in) : arg_in(in);
  const BufferView target = arg(out);
  const auto is_far = [](const BufferView& view, const Tensor& tensor) {
    return !fits_int32(static_cast<int64_t>(view.offset) + tensor.numel());
  };
  problem.is_large = is_far(source, in) || is_far(target, out);
  const auto plan = runtime::fft_plan(queue, problem);
  if (plan == nullptr) {
    return false;
  }
  plan->enqueue(queue, source, in.element_size(), target, out.element_size());
  return true;
}

Tensor transform_lines(const Tensor& lines, bool forward) {
  const int64_t size = lines.size(-1);
  if (size == 1 || lines.numel() == 0) {
    return lines;
  }
  if (runtime::has_fft_radixes(size)) {
    const Tensor out = at::empty(lines.sizes(), lines.options());
    return run_plan(lines, out, forward, false) ? out : Tensor();
  }
  return size <= kLongestOfMatrix ? by_matrix(lines, forward)
                                  : by_chirp(lines, forward);
}

Tensor transform_axis(const Tensor& tensor, int64_t dim, bool forward) {
  const Tensor lines =
      tensor.movedim(dim, -1).contiguous();  // copy: lines follow each other
  const Tensor result = transform_lines(lines, forward);
  return result.defined() ? result.movedim(-1, dim) : result;
}

}  // namespace torch_opencl::ops
