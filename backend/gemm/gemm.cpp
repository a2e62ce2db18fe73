// mm, addmm, bmm, baddbmm, addmv, dot: any strides, alpha and beta.
#include "../../cpp/aten/no_autocast.h"
#include "../../cpp/aten/solver.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../float8/float8.h"
#include "../linear_algebra/complex_product.h"
#include "kernel_sources.h"
#include "long_sides.h"
#include "product_gpu.h"
#include "tall_skinny.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/vdot_ops.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Scalar;
using at::Tensor;

struct GemmProblem {
  Product product;
  at::ScalarType dtype;
  bool is_large;
  bool is_left_transposed;
  bool is_right_transposed;

  std::string text() const {
    return c10::str(product.batch,
                    " x (",
                    product.rows,
                    " x ",
                    product.depth,
                    is_left_transposed ? ", transposed" : "",
                    ") (",
                    product.depth,
                    " x ",
                    product.columns,
                    is_right_transposed ? ", transposed" : "",
                    "), ",
                    c10::toString(dtype));
  }
};

// Three-dimensional; `self` is expanded to the output's sizes.
struct GemmArguments {
  const Tensor& left;
  const Tensor& right;
  const Tensor& out;
  const Tensor& self;
  const Scalar& alpha;
  const Scalar& beta;
};

// What `problem` multiplies, as the kernels of packed panels take it.
struct Operands {
  Operand left;
  Operand right;
  Output output;
  Addend addend;
};
Operands operands_of(const Product& p, const GemmArguments& a) {
  return {{arg_in(a.left),
           level(p.rows, a.left.stride(1)),
           level(p.depth, a.left.stride(2)),
           a.left.stride(0)},
          {arg_in(a.right),
           level(p.columns, a.right.stride(2)),
           level(p.depth, a.right.stride(1)),
           a.right.stride(0)},
          {arg(a.out),
           a.out.stride(1),
           level(p.columns, a.out.stride(2)),
           a.out.stride(0)},
          {arg_in(a.self),
           a.self.stride(1),
           a.self.stride(2),
           a.self.stride(0),
           a.alpha,
           a.beta}};
}

// What adds to its own output cannot run twice.
bool can_repeat(const GemmArguments& a) {
  return a.beta.equal(0) || !a.self.is_alias_of(a.out);
}

// The operand that panels would not be read often enough to pay for: the larger
// one, where its rows lie as a kernel can read them. Its last tile repeats some
// of its neighbour's outputs.
InPlace in_place_of(const Product& p, const GemmArguments& a) {
  if (!can_repeat(a)) {
    return InPlace::kNeither;
  }
  const bool is_right = a.right.stride(2) == 1 &&
                        is_right_in_place(a.out, p.rows, p.columns, p.depth);
  const bool is_left = a.left.stride(2) == 1 && p.columns <= kReadersInPlace &&
                       is_left_in_place(a.out, p.rows);
  return is_right && (!is_left || p.columns >= p.rows) ? InPlace::kRight
         : is_left                                     ? InPlace::kLeft
                                                       : InPlace::kNeither;
}

void run_packed(const GemmProblem& problem, const GemmArguments& a) {
  Product p = problem.product;
  const Operands operands = operands_of(p, a);
  p.in_place = in_place_of(p, a);
  p.shares_panels = false;
  const auto panels_or_itself = [&](InPlace side,
                                    const Tensor& matrix,
                                    const Operand& operand,
                                    int64_t rows,
                                    int64_t width) {
    if (p.in_place != side) {
      return pack(
          a.out, operand, p.batch, rows, p.depth, width, problem.is_large);
    }
    p.in_place_stride = matrix.stride(1);
    p.in_place_batch_stride = matrix.stride(0);
    return matrix;
  };
  const Tensor left = panels_or_itself(
      InPlace::kLeft, a.left, operands.left, p.rows, left_width(a.out, p.rows));
  const Tensor right = panels_or_itself(InPlace::kRight,
                                        a.right,
                                        operands.right,
                                        p.columns,
                                        right_width(a.out, p.columns));
  multiply(a.out,
           p,
           left,
           right,
           operands.output,
           operands.addend,
           problem.is_large);
}

bool supports_tall_skinny(const GemmProblem& problem,
                          const runtime::DeviceInfo& device) {
  const Product& p = problem.product;
  return device.device_class == runtime::DeviceClass::kCpu &&
         at::isFloatingType(problem.dtype) &&
         std::min(p.rows, p.columns) <= kTallSkinny;
}

bool prefers_tall_skinny(const GemmProblem& problem,
                         const runtime::DeviceInfo&) {
  const Product& p = problem.product;
  return std::max(p.rows, p.columns) > kTallSkinny;
}

bool supports_packed(const GemmProblem& problem,
                     const runtime::DeviceInfo& device) {
  return device.device_class == runtime::DeviceClass::kCpu &&
         at::isFloatingType(problem.dtype);
}

bool supports_tiles(const GemmProblem& problem,
                    const runtime::DeviceInfo& device) {
  return device.device_class == runtime::DeviceClass::kGpu &&
         at::isFloatingType(problem.dtype);
}

bool supports_all(const GemmProblem&, const runtime::DeviceInfo&) {
  return true;
}

void run_tall_skinny(const GemmProblem& problem, const GemmArguments& a) {
  Product p = problem.product;
  Operands operands = operands_of(p, a);
  if (p.columns > p.rows) {
    // (A B)^T = B^T A^T
    std::swap(p.rows, p.columns);
    std::swap(operands.left, operands.right);
    Output& output = operands.output;
    output.column = level(
        p.columns, std::exchange(output.row_stride, output.column.stride));
    std::swap(operands.addend.row_stride, operands.addend.column_stride);
  }
  multiply_tall_skinny(a.out,
                       p,
                       operands.left,
                       operands.right,
                       operands.output,
                       operands.addend,
                       problem.is_large);
}

void run_tiles(const GemmProblem& problem, const GemmArguments& a) {
  const Product& p = problem.product;
  const Operands operands = operands_of(p, a);
  const auto as_it_lies = [](const Operand& operand) {
    return ProductOperand{operand.view,
                          operand.row,
                          operand.depth.stride,
                          operand.batch_stride,
                          operand.row.size};
  };
  const EpilogueTarget target{
      "matrix product", a.out, {a.left, a.right, a.self}};
  multiply_gpu(a.out,
               {.operands = problem.dtype,
                .product = p,
                .left = as_it_lies(operands.left),
                .right = as_it_lies(operands.right),
                .output = operands.output,
                .addend = operands.addend,
                .is_large = problem.is_large,
                .can_repeat = can_repeat(a),
                .target = &target});
}

void run_strided(const GemmProblem& problem, const GemmArguments& a) {
  const Product& p = problem.product;
  const at::ScalarType compute = compute_type(problem.dtype);
  const auto stride = [&problem](int64_t value) {
    return index_argument(value, problem.is_large);
  };
  launch(a.out,
         sources::gemm_strided,
         "gemm_strided",
         {{"DTYPE", dtype_of(a.out)}, {"INDEX64", problem.is_large}},
         range(p.columns, p.rows, p.batch, 16, 1, 1),
         arg_in(a.left),
         arg_in(a.right),
         arg(a.out),
         arg_in(a.self),
         static_cast<int32_t>(p.rows),
         static_cast<int32_t>(p.columns),
         static_cast<int32_t>(p.depth),
         stride(a.left.stride(1)),
         stride(a.left.stride(2)),
         stride(a.left.stride(0)),
         stride(a.right.stride(1)),
         stride(a.right.stride(2)),
         stride(a.right.stride(0)),
         stride(a.out.stride(1)),
         stride(a.out.stride(2)),
         stride(a.out.stride(0)),
         stride(a.self.stride(1)),
         stride(a.self.stride(2)),
         stride(a.self.stride(0)),
         scalar_argument(a.alpha, compute),
         scalar_argument(a.beta, compute));
}

using GemmSolver = Solver<GemmProblem, GemmArguments>;

constexpr GemmSolver kSolvers[] = {
    {"tall_skinny", supports_tall_skinny, prefers_tall_skinny, run_tall_skinny},
    {"packed", supports_packed, nullptr, run_packed},
    {"tiles", supports_tiles, nullptr, run_tiles},
    {"strided", supports_all, nullptr, run_strided},
};
constexpr SolverFamily<GemmProblem, GemmArguments> kFamily{"product", kSolvers};

void gemm(const Tensor& left,
          const Tensor& right,
          const Tensor& self,
          const Scalar& beta,
          const Scalar& alpha,
          const Tensor& out) {
  if (out.numel() == 0) {
    return;
  }
  if (out.scalar_type() == at::kBool && left.size(2) == 0 && beta.equal(0)) {
    out.zero_();  // as on the CPU, which refuses bool only where it multiplies
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(out.scalar_type() != at::kBool,
                              "\"gemm\" not implemented for 'Bool'");
  if (at::isIntegralType(out.scalar_type(), false) && left.size(2) > 0) {
    checked_scalar(alpha, out.scalar_type());
    checked_scalar(beta, out.scalar_type());
  }
  if (multiply_long_sides(gemm, left, right, self, beta, alpha, out)) {
    return;
  }
  if (out.is_complex()) {
    complex_product(left, right, self, beta, alpha, out);
    return;
  }
  const GemmProblem problem{
      {out.size(0), out.size(1), out.size(2), left.size(2)},
      out.scalar_type(),
      needs_long_index({left, right, self, out}),
      left.stride(1) == 1,
      right.stride(1) == 1};
  const GemmArguments arguments{left, right, out, self, alpha, beta};
  solve(kFamily, problem, arguments, out, can_repeat(arguments));
}

void gemm_2d(const Tensor& left,
             const Tensor& right,
             const Tensor& self,
             const Scalar& beta,
             const Scalar& alpha,
             const Tensor& out) {
  gemm(left.unsqueeze(0),
       right.unsqueeze(0),
       self.unsqueeze(0),
       beta,
       alpha,
       out.unsqueeze(0));
}

// In float32, as the CPU's products of float8 matrices.
Tensor float8_factor(const Tensor& matrix) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      matrix.scalar_type() != at::ScalarType::Float8_e8m0fnu,
      "\"addmm_impl_cpu_\" not implemented for '",
      matrix.scalar_type(),
      "'");
  return float8_values(matrix);
}

// The gradient of a linear layer's weight: what the layer's backward pass
// computes behind the gradient of its input.
bool is_weight_gradient(const Tensor& left, const Tensor& right) {
  return left.stride(0) == 1 && left.stride(1) > 1 && right.stride(1) == 1 &&
         right.stride(0) > 1;
}

struct mm_out : at::meta::structured_mm {
  void impl(const Tensor& self, const Tensor& mat2, const Tensor& out) {
    TORCH_CHECK(self.dtype() == mat2.dtype(),
                "expected m1 and m2 to have the same dtype, but got: ",
                self.dtype(),
                " != ",
                mat2.dtype());
    if (is_float8(self)) {
      const aten::NoAutocast guard;
      out.copy_(at::mm(float8_factor(self), float8_factor(mat2)));
      return;
    }
    const auto multiply = [&] { gemm_2d(self, mat2, out, 0, 1, out); };
    if (is_weight_gradient(self, mat2)) {
      launch_ahead(out, {self, mat2}, {out}, multiply);
    } else {
      multiply();
    }
  }
};

struct addmm_out : at::meta::structured_addmm {
  void impl(const Tensor& self,
            const Tensor& mat1,
            const Tensor& mat2,
            const Scalar& beta,
            const Scalar& alpha,
            const Tensor& out) {
    check_dtype_of_mat2("mat1", mat1, mat2);
    check_dtype_of_mat2("self", self, mat2);
    if (is_float8(self)) {
      const aten::NoAutocast guard;
      out.copy_(at::addmm(float8_factor(self),
                          float8_factor(mat1),
                          float8_factor(mat2),
                          beta,
                          alpha));
      return;
    }
    gemm_2d(mat1, mat2, self.expand(out.sizes()), beta, alpha, out);
  }
};

struct bmm_out : at::meta::structured_bmm {
  void impl(const Tensor& self, const Tensor& mat2, const Tensor& out) {
    check_scalar_type(mat2, self.scalar_type());
    gemm(self, mat2, out, 0, 1, out);
  }
};

struct baddbmm_out : at::meta::structured_baddbmm {
  void impl(const Tensor& self,
            const Tensor& batch1,
            const Tensor& batch2,
            const Scalar& beta,
            const Scalar& alpha,
            const Tensor& out) {
    check_scalar_type(batch2, batch1.scalar_type());
    check_scalar_type(self, batch1.scalar_type());
    gemm(batch1, batch2, self.expand(out.sizes()), beta, alpha, out);
  }
};

struct addmv_out : at::meta::structured_addmv {
  void impl(const Tensor& self,
            const Tensor& mat,
            const Tensor& vec,
            const Scalar& beta,
            const Scalar& alpha,
            const Tensor& out) {
    gemm_2d(mat,
            vec.unsqueeze(1),
            self.expand(out.sizes()).unsqueeze(1),
            beta,
            alpha,
            out.unsqueeze(1));
  }
};

Tensor dot(const Tensor& self, const Tensor& other) {
  check_implemented(
      self.scalar_type() != at::kBool && !at::isFloat8Type(self.scalar_type()),
      "dot",
      self.scalar_type());
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1,
              "1D tensors expected, but got ",
              self.dim(),
              "D and ",
              other.dim(),
              "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ",
              self.scalar_type(),
              " and ",
              other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(),
              "inconsistent tensor size, expected tensor [",
              self.numel(),
              "] and src [",
              other.numel(),
              "] to have the same number of elements, but got ",
              self.numel(),
              " and ",
              other.numel(),
              " elements respectively");
  const aten::NoAutocast guard;
  const at::ScalarType dtype = self.scalar_type();
  if (at::isReducedFloatingType(dtype)) {
    // Products are not rounded before they are added up.
    return at::sum(at::mul(self.to(at::kFloat), other)).to(dtype);
  }
  return at::sum(at::mul(self, other), dtype);
}

Tensor vdot(const Tensor& self, const Tensor& other) {
  return dot(self.conj(), other);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<mm_out, at::_ops::mm_out, Numbers::kRealAndComplex>(m);
  structured<mm_out, at::_ops::mm, Numbers::kRealAndComplex>(m);
  structured<addmm_out, at::_ops::addmm_out, Numbers::kRealAndComplex>(m);
  structured<bmm_out, at::_ops::bmm_out, Numbers::kRealAndComplex>(m);
  structured<baddbmm_out, at::_ops::baddbmm_out, Numbers::kRealAndComplex>(m);
  structured<addmv_out, at::_ops::addmv_out, Numbers::kRealAndComplex>(m);
  m.impl("dot",
         &WithFallback<at::_ops::dot, &dot, Numbers::kRealAndComplex>::call);
  m.impl("vdot",
         &WithFallback<at::_ops::vdot, &vdot, Numbers::kRealAndComplex>::call);
}

}  // namespace torch_opencl::ops
