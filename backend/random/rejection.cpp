// _standard_gamma, _sample_dirichlet, poisson and binomial. Bad rates are
// reported, bad shapes and counts give NaN.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/reports.h"
#include "../../cpp/device/generator.h"
#include "../common/dtype_check.h"
#include "kernel_sources.h"

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_sample_dirichlet_ops.h>
#include <ATen/ops/_standard_gamma_ops.h>
#include <ATen/ops/binomial_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/poisson_ops.h>
#include <torch/library.h>

#include <limits>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using MaybeGenerator = std::optional<at::Generator>;

// Blocks of four numbers that the generator sets aside for every element.
constexpr int64_t kBlocks = 256;
constexpr const char* kPoisson = "POISSON";

Tensor draw(const Tensor& first,
            const Tensor& second,
            const MaybeGenerator& generator,
            const char* distribution) {
  const Tensor out = at::empty(first.sizes(), first.options());
  if (out.numel() == 0) {
    return out;
  }
  const runtime::RandomArgument random =
      device::reserve_philox(generator, out.device(), 4 * kBlocks);
  const auto launch_with = [&](const auto&... reported) {
    launch(out,
           sources::random,
           "random_by_rejection",
           {{"DTYPE", dtype_of(out)},
            {"OUT_DTYPE", dtype_of(out)},
            {"LANES", 1},
            {"REAL_IS_DOUBLE", out.scalar_type() == at::kDouble},
            {distribution, 1}},
           range(out.numel(), 64),
           arg(out),
           arg_in(first.contiguous()),   // copy: one index for all
           arg_in(second.contiguous()),  // copy: one index for all
           static_cast<uint64_t>(out.numel()),
           random,
           reported...);
  };
  if (distribution == kPoisson) {
    launch_with(reports(out, "poisson"));
  } else {
    launch_with();
  }
  return out;
}

// Of what is drawn: more than 0, and less than 1.
struct Limits {
  double least;
  double most;
};

Limits limits_of(at::ScalarType type) {
  Limits limits{};
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, type, "limits", [&] {
        limits.least = std::numeric_limits<scalar_t>::min();
        limits.most = 1 - std::numeric_limits<scalar_t>::epsilon() / 2.0;
      });
  return limits;
}

Tensor standard_gamma(const Tensor& self, MaybeGenerator generator) {
  check_floating("gamma_cpu", self);
  return draw(self, self, generator, "GAMMA")
      .clamp_min_(limits_of(self.scalar_type()).least);
}

Tensor poisson(const Tensor& self, MaybeGenerator generator) {
  check_floating("poisson_cpu", self);
  return draw(self, self, generator, kPoisson);
}

Tensor binomial(const Tensor& count,
                const Tensor& prob,
                MaybeGenerator generator) {
  check_floating("binomial_cpu", count);
  const auto [n, p] = at::expand_outplace(count, prob);
  check_same_dtype(*p, n->scalar_type());
  return draw(*n, *p, generator, "BINOMIAL");
}

// Gamma numbers over their sum, in float for the half types. Of their
// logarithms, for all those of a small concentration may be too small to tell
// apart.
Tensor sample_dirichlet(const Tensor& self, MaybeGenerator generator) {
  check_floating("dirichlet", self);
  const at::ScalarType compute = compute_type(self.scalar_type());
  const Tensor concentration = self.to(compute);
  const Tensor logarithms =
      draw(concentration, concentration, generator, "LOG_GAMMA");
  const auto [least, most] = limits_of(self.scalar_type());
  return logarithms.softmax(-1).to(self.scalar_type()).clamp_(least, most);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_standard_gamma",
         &WithFallback<at::_ops::_standard_gamma, &standard_gamma>::call);
  m.impl("poisson", &WithFallback<at::_ops::poisson, &poisson>::call);
  m.impl("binomial", &WithFallback<at::_ops::binomial, &binomial>::call);
  m.impl("_sample_dirichlet",
         &WithFallback<at::_ops::_sample_dirichlet, &sample_dirichlet>::call);
}

}  // namespace torch_opencl::ops
