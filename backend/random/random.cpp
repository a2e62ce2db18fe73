// Random fills: ATen's own checks and error texts, Philox on the device. The
// numbers depend on the seed and the shape, not on strides; normal and the
// like also on the last bits of the driver's logarithm.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/device/generator.h"
#include "../common/dtype_check.h"
#include "../common/integers.h"
#include "../common/kernel_text.h"
#include "../pointwise/pointwise.h"
#include "kernel_sources.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/cauchy_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exponential_ops.h>
#include <ATen/ops/geometric_ops.h>
#include <ATen/ops/log_normal_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/random_ops.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/randperm_ops.h>
#include <ATen/ops/uniform_ops.h>
#include <torch/library.h>

#include <limits>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using MaybeGenerator = std::optional<at::Generator>;

// Bits of the significand, the implicit one included.
int64_t significand(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return std::numeric_limits<at::Half>::digits;
    case at::kBFloat16:
      return std::numeric_limits<at::BFloat16>::digits;
    case at::kDouble:
      return std::numeric_limits<double>::digits;
    default:
      return std::numeric_limits<float>::digits;
  }
}

// Runs a kernel of random.cl over `self` in its logical order.
template <class... Arguments>
void fill(const Tensor& self,
          const MaybeGenerator& generator,
          const char* kernel,
          bool is_wide,
          int64_t digits,
          const Arguments&... arguments) {
  if (self.numel() == 0) {
    return;
  }
  const Tensor out = self.is_contiguous()
                         ? self
                         : at::empty_like(self, at::MemoryFormat::Contiguous);
  const runtime::RandomArgument random =
      device::reserve_philox(generator, self.device(), 4);
  // Compilers make no vectors of Philox: it is written in them where the
  // results hold whatever is drawn.
  const std::string_view name = kernel;
  const at::ScalarType dtype = self.scalar_type();
  const bool is_integer = name == "random_integer";
  const bool holds =
      is_integer ? at::isIntegralType(dtype, /*includeBool=*/false)
                 : dtype == at::kFloat || dtype == at::kBool ||
                       (has_lanes(dtype_of(out)) && name != "random_uniform");
  const bool lanes = aten::device_of(out).is_cpu() && !is_wide && holds;
  const bool computes_float =
      lanes && at::isIntegralType(dtype, /*includeBool=*/true);
  const int64_t elements = is_wide ? 2 : lanes ? 4 * 16 * 64 : 4;
  launch(out,
         sources::random,
         kernel,
         {{"DTYPE", computes_float ? DType::kFloat32 : dtype_of(out)},
          {"OUT_DTYPE", lanes && is_integer ? DType::kFloat32 : dtype_of(out)},
          {"INTEGER_DTYPE", dtype_of(out)},
          {"LANES", lanes ? 16 : 1},
          {"IS_WIDE", is_wide},
          {"DIGITS", digits},
          {"REAL_IS_DOUBLE", self.scalar_type() == at::kDouble}},
         range(ceil_div(out.numel(), elements), lanes ? 1 : 64),
         arg(out),
         static_cast<uint64_t>(out.numel()),
         random,
         arguments...);
  if (!out.is_same(self)) {
    self.copy_(out);
  }
}

// Two real parameters, in the arithmetic of the dtype.
void fill_real(const Tensor& self,
               const MaybeGenerator& generator,
               const char* kernel,
               double first,
               double second,
               int64_t digits = 0) {
  const bool is_double = self.scalar_type() == at::kDouble;
  const at::ScalarType real = is_double ? at::kDouble : at::kFloat;
  fill(self,
       generator,
       kernel,
       is_double,
       digits > 0 ? digits : (is_double ? 53 : 24),
       scalar_argument(first, real),
       scalar_argument(second, real));
}

// Numbers that kernels draw: any but complex and 8-bit floating-point ones.
void check_drawable(const char* name, const Tensor& self) {
  const at::ScalarType type = self.scalar_type();
  check_implemented(
      !at::isComplexType(type) && !at::isFloat8Type(type), name, type);
}

void fill_integers(const Tensor& self,
                   const MaybeGenerator& generator,
                   uint64_t range,
                   int64_t base) {
  check_drawable("random_kernel_cpu", self);
  const bool is_wide = range == 0 || range > (uint64_t(1) << 32);
  fill(self, generator, "random_integer", is_wide, 24, range, base);
}

void check_continuous(const char* distribution, at::ScalarType type) {
  TORCH_CHECK(at::isFloatingType(type),
              distribution,
              " distribution is a continuous probability distribution. dtype "
              "must be a floating point but you specified ",
              type);
}

// ATen's templates name a kernel by a class of the generator type.
template <class>
struct UniformKernel {
  void operator()(at::TensorIterator& iter,
                  double from,
                  double to,
                  const MaybeGenerator& generator) {
    const Tensor& self = iter.tensor(0);
    fill_real(self,
              generator,
              "random_uniform",
              from,
              to,
              significand(self.scalar_type()));
  }
};

template <class>
struct NormalKernel {
  void operator()(const Tensor& self,
                  double mean,
                  double deviation,
                  const MaybeGenerator& generator) {
    check_floating("normal_kernel_cpu", self);
    fill_real(self, generator, "random_normal", mean, deviation);
  }
};

template <class>
struct LogNormalKernel {
  void operator()(at::TensorIterator& iter,
                  double mean,
                  double deviation,
                  const MaybeGenerator& generator) {
    const Tensor& self = iter.tensor(0);
    check_floating("log_normal_cpu", self);
    fill_real(self, generator, "random_log_normal", mean, deviation);
  }
};

template <class>
struct ExponentialKernel {
  void operator()(at::TensorIterator& iter,
                  double rate,
                  const MaybeGenerator& generator) {
    check_continuous("Exponential", iter.dtype());
    fill_real(iter.tensor(0), generator, "random_exponential", rate, 0);
  }
};

template <class>
struct CauchyKernel {
  void operator()(at::TensorIterator& iter,
                  double median,
                  double sigma,
                  const MaybeGenerator& generator) {
    check_continuous("Cauchy", iter.dtype());
    fill_real(iter.tensor(0), generator, "random_cauchy", median, sigma);
  }
};

template <class>
struct GeometricKernel {
  void operator()(at::TensorIterator& iter,
                  double p,
                  const MaybeGenerator& generator) {
    check_number("geometric_cpu", iter.tensor(0));
    fill_real(iter.tensor(0), generator, "random_geometric", p, 0);
  }
};

template <class>
struct BernoulliScalarKernel {
  void operator()(Tensor& self, double p, const MaybeGenerator& generator) {
    check_drawable("bernoulli_scalar_cpu_", self);
    fill_real(self, generator, "random_bernoulli", p, 0);
  }
};

constexpr PointwiseOp kBernoulli{.name = "bernoulli",
                                 .expression = "draw < p || p >= 1",
                                 .inputs = "draw p",
                                 .probabilities = "p"};

template <class>
struct BernoulliTensorKernel {
  void operator()(Tensor& self,
                  const Tensor& p,
                  const MaybeGenerator& generator) {
    check_drawable("bernoulli_tensor_cpu_self_", self);
    check_floating("bernoulli_tensor_cpu_p_", p);
    const Tensor draws = at::empty(
        self.sizes(),
        self.options().dtype(p.scalar_type() == at::kDouble ? at::kDouble
                                                            : at::kFloat));
    const int64_t digits = draws.scalar_type() == at::kDouble ? 53 : 32;
    fill_real(draws, generator, "random_unit", 0, 1, digits);
    const Tensor probabilities = p.to(draws.options());
    auto iter = at::TensorIteratorConfig()
                    .add_output(draws)
                    .add_const_input(draws)
                    .add_const_input(probabilities)
                    .build();
    pointwise(iter, kBernoulli, {});
    self.copy_(draws);
  }
};

template <class>
struct RandomKernel {
  void operator()(at::TensorIterator& iter, const MaybeGenerator& generator) {
    const Tensor& self = iter.tensor(0);
    uint64_t range = 0;
    if (at::isFloatingType(self.scalar_type())) {
      range = (uint64_t(1) << significand(self.scalar_type())) + 1;
    } else {
      AT_DISPATCH_V2(
          self.scalar_type(),
          "random_kernel_cpu",
          AT_WRAP([&] {
            range =
                static_cast<uint64_t>(std::numeric_limits<scalar_t>::max()) + 1;
          }),
          at::kBool,
          AT_EXPAND(AT_INTEGRAL_TYPES_V2));
    }
    fill_integers(self, generator, range, 0);
  }
};

template <class>
struct RandomFromToKernel {
  void operator()(at::TensorIterator& iter,
                  uint64_t range,
                  int64_t from,
                  const MaybeGenerator& generator) {
    fill_integers(iter.tensor(0), generator, range, from);
  }
  // All 64 bits.
  void operator()(at::TensorIterator& iter, const MaybeGenerator& generator) {
    fill_integers(iter.tensor(0), generator, 0, 0);
  }
};

namespace templates = at::native::templates;
using Philox = device::GeneratorImpl;

Tensor& uniform_(Tensor& self, double from, double to, MaybeGenerator g) {
  return templates::uniform_impl_<UniformKernel, Philox>(self, from, to, g);
}
Tensor& normal_(Tensor& self, double mean, double std, MaybeGenerator g) {
  return templates::normal_impl_<NormalKernel, Philox>(self, mean, std, g);
}
Tensor& log_normal_(Tensor& self, double mean, double std, MaybeGenerator g) {
  return templates::log_normal_impl_<LogNormalKernel, Philox>(
      self, mean, std, g);
}
Tensor& exponential_(Tensor& self, double rate, MaybeGenerator g) {
  return templates::exponential_impl_<ExponentialKernel, Philox>(self, rate, g);
}
Tensor& cauchy_(Tensor& self, double median, double sigma, MaybeGenerator g) {
  return templates::cauchy_impl_<CauchyKernel, Philox>(self, median, sigma, g);
}
Tensor& geometric_(Tensor& self, double p, MaybeGenerator g) {
  return templates::geometric_impl_<GeometricKernel, Philox>(self, p, g);
}
Tensor& bernoulli_float_(Tensor& self, double p, MaybeGenerator g) {
  return templates::bernoulli_impl_<BernoulliScalarKernel, Philox>(self, p, g);
}
Tensor& bernoulli_tensor_(Tensor& self, const Tensor& p, MaybeGenerator g) {
  return templates::bernoulli_impl_<BernoulliTensorKernel, Philox>(self, p, g);
}
Tensor& bernoulli_out(const Tensor& self, MaybeGenerator g, Tensor& out) {
  return templates::bernoulli_out_impl<BernoulliTensorKernel, Philox>(
      out, self, g);
}
Tensor& random_(Tensor& self, MaybeGenerator g) {
  return templates::random_impl<RandomKernel, Philox>(self, g);
}
Tensor& random_from_(Tensor& self,
                     int64_t from,
                     std::optional<int64_t> to,
                     MaybeGenerator g) {
  return templates::random_from_to_impl<RandomFromToKernel, Philox>(
      self, from, to, g);
}
Tensor& random_to_(Tensor& self, int64_t to, MaybeGenerator g) {
  return random_from_(self, 0, to, g);
}

Tensor normal_float_tensor(double mean, const Tensor& std, MaybeGenerator g) {
  return templates::normal_impl<NormalKernel, Philox>(mean, std, g);
}
Tensor normal_tensor_float(const Tensor& mean, double std, MaybeGenerator g) {
  return templates::normal_impl<NormalKernel, Philox>(mean, std, g);
}
Tensor normal_tensor_tensor(const Tensor& mean,
                            const Tensor& std,
                            MaybeGenerator g) {
  return templates::normal_impl<NormalKernel, Philox>(mean, std, g);
}

// Shuffled on the host by a generator that this device's state seeds.
Tensor& randperm_out(int64_t n, MaybeGenerator g, Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  queue_of(out).check_not_capturing();
  const runtime::RandomArgument random =
      device::reserve_philox(g, out.device(), 4);
  const at::Generator host = at::detail::createCPUGenerator(
      random.seed + random.calls * 4 * 0x9E3779B97F4A7C15ull);
  out.resize_({n});
  out.copy_(at::randperm(n, host, out.options().device(at::kCPU)));
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::uniform_, &uniform_>(m);
  native<at::_ops::normal_, &normal_>(m);
  native<at::_ops::normal_float_Tensor, &normal_float_tensor>(m);
  native<at::_ops::normal_Tensor_float, &normal_tensor_float>(m);
  native<at::_ops::normal_Tensor_Tensor, &normal_tensor_tensor>(m);
  native<at::_ops::log_normal_, &log_normal_>(m);
  native<at::_ops::exponential_, &exponential_>(m);
  native<at::_ops::cauchy_, &cauchy_>(m);
  native<at::_ops::geometric_, &geometric_>(m);
  native<at::_ops::bernoulli__float, &bernoulli_float_>(m);
  native<at::_ops::bernoulli__Tensor, &bernoulli_tensor_>(m);
  native<at::_ops::bernoulli_out, &bernoulli_out>(m);
  native<at::_ops::random_, &random_>(m);
  native<at::_ops::random__from, &random_from_>(m);
  native<at::_ops::random__to, &random_to_>(m);
  m.impl("randperm.generator_out", TORCH_FN(randperm_out));
}

}  // namespace torch_opencl::ops
