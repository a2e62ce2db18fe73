// _fused_sgd_, _fused_adam_, _fused_adamw_ and _fused_adagrad_: a whole step
// for every parameter, in grouped launches. Formulas are those of torch.optim.
#include "multi_tensor.h"

#include "../../cpp/aten/launch.h"
#include "../common/optional_tensor.h"

#include <torch/library.h>

#include <cmath>
#include <list>
#include <map>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using at::TensorList;

// Equal elements have equal places in memory. A stride over one element has no
// meaning.
bool lie_alike(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes()) {
    return false;
  }
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) {
      return false;
    }
  }
  return true;
}

// What every fused optimizer does with the gradient, and the numbers that lie
// on the device: each is repeated for all tensors of the lists.
class Step {
 public:
  Step(const char* name, TensorList self, TensorList grads, bool maximize)
      : name_(name), count_(self.size()) {
    operands_.push_back({"param", self, true, true});
    add("grad", grads, false);
    maximize_ = maximize;
  }

  void add(const char* name, TensorList list, bool is_written = true) {
    TORCH_CHECK(list.size() == count_,
                name_,
                ": expected ",
                count_,
                " tensors of each kind, got ",
                list.size(),
                " of ",
                name);
    operands_.push_back({name, list, true, is_written});
  }

  void add_single(const char* name, TensorList list) {
    operands_.push_back({name, list, true, false, true});
  }

  void add_single(const char* name, const Tensor& tensor) {
    TORCH_CHECK(tensor.device() == operands_[0].tensors[0].device(),
                name_,
                ": expected ",
                name,
                " on ",
                operands_[0].tensors[0].device(),
                ", got ",
                tensor.device());
    repeated_.push_back(std::vector<Tensor>(count_, tensor));
    add_single(name, TensorList(repeated_.back()));
  }

  void add_number(const char* name, double value) {
    scalars_.push_back({name, {value}});
  }

  // The learning rate may be a tensor, on either side.
  void add_rate(double lr) { add_number("lr", lr); }
  void add_rate(const Tensor& lr) {
    if (lr.is_cpu()) {
      add_number("lr", lr.item<double>());
    } else {
      add_single("lr", lr);
    }
  }

  void run(const OptionalTensor& grad_scale,
           const OptionalTensor& found_inf,
           const std::string& statements) {
    if (count_ == 0) {
      return;
    }
    std::string text;
    if (is_given(found_inf)) {
      add_single("found_inf", *found_inf);
      text += "    if (found_inf == 0) {\n";
    } else {
      text += "    {\n";
    }
    if (is_given(grad_scale)) {
      add_single("grad_scale", *grad_scale);
      operands_[1].is_written = true;
      text += "      grad /= grad_scale;\n";
    }
    text += std::string("      value_t g = ") + (maximize_ ? "-grad" : "grad") +
            ";\n" + statements + "    }\n";
    check_alike();
    TORCH_CHECK_NOT_IMPLEMENTED(
        multi_tensor_apply(name_, text, operands_, scalars_),
        name_,
        ": opencl tensors of 2^31 or more elements");
  }

 private:
  void check_alike() const {
    for (const TensorOperand& operand : operands_) {
      for (size_t t = 0; t < count_; ++t) {
        const Tensor& param = operands_[0].tensors[t];
        const Tensor& tensor = operand.tensors[t];
        TORCH_CHECK(tensor.device() == param.device(),
                    name_,
                    ": expected all tensors on ",
                    param.device(),
                    ", got ",
                    operand.name,
                    " on ",
                    tensor.device());
        TORCH_CHECK(
            at::isFloatingType(tensor.scalar_type()) &&
                tensor.scalar_type() == operand.tensors[0].scalar_type(),
            name_,
            ": expected floating-point tensors of one dtype, got ",
            operand.name,
            " of ",
            tensor.scalar_type());
        TORCH_CHECK(
            operand.is_single || (lie_alike(tensor, param) &&
                                  tensor.is_non_overlapping_and_dense()),
            name_,
            ": params, grads and states must have same dtype, device, "
            "and layout; got ",
            operand.name,
            " of shape ",
            tensor.sizes(),
            " for a parameter of shape ",
            param.sizes());
      }
    }
  }

  const char* name_;
  size_t count_;
  bool maximize_;
  std::vector<TensorOperand> operands_;
  std::vector<ScalarOperand> scalars_;
  // Lists that operands view: a list moves none when it grows.
  std::list<std::vector<Tensor>> repeated_;
};

// 1 - beta^step, without the cancellation of small steps.
const char* kCorrections =
    "      const compute_t correction1 = -expm1(step * log_beta1);\n"
    "      const compute_t correction2 = -expm1(step * log_beta2);\n";

template <class Rate, bool kDecoupled>
void fused_adam(TensorList self,
                TensorList grads,
                TensorList exp_avgs,
                TensorList exp_avg_sqs,
                TensorList max_exp_avg_sqs,
                TensorList state_steps,
                Rate lr,
                double beta1,
                double beta2,
                double weight_decay,
                double eps,
                bool amsgrad,
                bool maximize,
                const OptionalTensor& grad_scale,
                const OptionalTensor& found_inf) {
  Step step(
      kDecoupled ? "_fused_adamw_" : "_fused_adam_", self, grads, maximize);
  step.add("exp_avg", exp_avgs);
  step.add("exp_avg_sq", exp_avg_sqs);
  if (amsgrad) {
    step.add("max_exp_avg_sq", max_exp_avg_sqs);
  }
  step.add_single("step", state_steps);
  step.add_rate(lr);
  step.add_number("beta1", 1 - beta1);
  step.add_number("beta2", 1 - beta2);
  step.add_number("log_beta1", std::log(beta1));
  step.add_number("log_beta2", std::log(beta2));
  step.add_number("weight_decay", weight_decay);
  step.add_number("eps", eps);
  std::string text;
  if (weight_decay != 0) {
    text += kDecoupled ? "      param -= lr * weight_decay * param;\n"
                       : "      g += param * weight_decay;\n";
  }
  text += kCorrections;
  text +=
      "      exp_avg += beta1 * (g - exp_avg);\n"
      "      exp_avg_sq += beta2 * (g * g - exp_avg_sq);\n";
  if (amsgrad) {
    text += "      max_exp_avg_sq = fmax(max_exp_avg_sq, exp_avg_sq);\n";
  }
  text += std::string("      const value_t second = ") +
          (amsgrad ? "max_exp_avg_sq" : "exp_avg_sq") + ";\n";
  text +=
      "      const value_t denominator = sqrt(second) / sqrt(correction2) + "
      "eps;\n"
      "      param -= lr / correction1 * exp_avg / denominator;\n";
  step.run(grad_scale, found_inf, text);
}

template <class Rate>
void fused_sgd(TensorList self,
               TensorList grads,
               TensorList momentum_buffers,
               double weight_decay,
               double momentum,
               Rate lr,
               double dampening,
               bool nesterov,
               bool maximize,
               bool is_first_step,
               const OptionalTensor& grad_scale,
               const OptionalTensor& found_inf) {
  Step step("_fused_sgd_", self, grads, maximize);
  std::string text;
  if (weight_decay != 0) {
    text += "      g += weight_decay * param;\n";
    step.add_number("weight_decay", weight_decay);
  }
  if (!momentum_buffers.empty()) {
    step.add("buffer", momentum_buffers);
    step.add_number("momentum", momentum);
    step.add_number("damped", 1 - dampening);
    text += is_first_step ? "      buffer = g;\n"
                          : "      buffer = momentum * buffer + damped * g;\n";
    text +=
        nesterov ? "      g += momentum * buffer;\n" : "      g = buffer;\n";
  }
  step.add_rate(lr);
  text += "      param -= lr * g;\n";
  step.run(grad_scale, found_inf, text);
}

template <class Rate>
void fused_adagrad(TensorList self,
                   TensorList grads,
                   TensorList state_sums,
                   TensorList state_steps,
                   Rate lr,
                   double lr_decay,
                   double weight_decay,
                   double eps,
                   bool maximize,
                   const OptionalTensor& grad_scale,
                   const OptionalTensor& found_inf) {
  Step step("_fused_adagrad_", self, grads, maximize);
  step.add("sum", state_sums);
  step.add_single("step", state_steps);
  step.add_rate(lr);
  step.add_number("lr_decay", lr_decay);
  step.add_number("weight_decay", weight_decay);
  step.add_number("eps", eps);
  step.run(grad_scale,
           found_inf,
           "      g += weight_decay * param;\n"
           "      sum += g * g;\n"
           "      param -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(sum) + "
           "eps);\n");
}

// GradScaler's: unscales all gradients and says whether one was not finite.
void amp_unscale(TensorList self, Tensor& found_inf, const Tensor& inv_scale) {
  if (self.empty()) {
    return;
  }
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inv_scale.scalar_type() == at::kFloat,
              "inv_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat,
              "found_inf must be a float tensor.");
  // Lists of one dtype a launch.
  std::map<at::ScalarType, std::vector<Tensor>> by_dtype;
  std::vector<std::pair<Tensor, Tensor>> strided;  // and what is scaled of it
  for (const Tensor& tensor : self) {
    TORCH_CHECK(at::isFloatingType(tensor.scalar_type()) &&
                    tensor.device() == found_inf.device(),
                "_amp_foreach_non_finite_check_and_unscale_: expected "
                "floating-point gradients on ",
                found_inf.device(),
                ", got ",
                tensor.scalar_type(),
                " on ",
                tensor.device());
    const Tensor dense = tensor.is_non_overlapping_and_dense()
                             ? tensor
                             : tensor.clone();  // copy: grouped walks all of it
    by_dtype[tensor.scalar_type()].push_back(dense);
    if (!dense.is_same(tensor)) {
      strided.emplace_back(tensor, dense);
    }
  }
  for (const auto& [dtype, tensors] : by_dtype) {
    const std::vector<Tensor> found(tensors.size(), found_inf);
    const std::vector<Tensor> inverse(tensors.size(), inv_scale);
    // Whoever finds one writes the same number.
    TORCH_CHECK_NOT_IMPLEMENTED(
        multi_tensor_apply(
            "amp_unscale",
            "    if (!isfinite(value)) found_inf_at[0] = 1;\n"
            "    value = inverse == 1 ? value : value * inverse;\n",
            {{"value", tensors, true, true},
             {"found_inf", found, false, true, true},
             {"inverse", inverse, true, false, true}},
            {}),
        "_amp_foreach_non_finite_check_and_unscale_: opencl tensors of 2^31 or "
        "more elements");
  }
  for (const auto& [tensor, dense] : strided) {
    tensor.copy_(dense);
  }
}

// All on the device: growing waits for nobody.
Tensor& amp_update_scale(Tensor& current_scale,
                         Tensor& growth_tracker,
                         const Tensor& found_inf,
                         double growth_factor,
                         double backoff_factor,
                         int64_t growth_interval) {
  TORCH_CHECK(growth_tracker.numel() == 1,
              "growth_tracker must be a 1-element tensor.");
  TORCH_CHECK(current_scale.numel() == 1,
              "current_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(growth_tracker.scalar_type() == at::kInt,
              "growth_tracker must be an int tensor.");
  TORCH_CHECK(current_scale.scalar_type() == at::kFloat,
              "current_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat,
              "found_inf must be a float tensor.");
  const std::vector<Tensor> scale{current_scale};
  const std::vector<Tensor> tracker{growth_tracker};
  const std::vector<Tensor> found{found_inf};
  const bool is_done = multi_tensor_apply(
      "amp_update_scale",
      "    const int grown = found_inf != 0 ? 0 : tracker_at[0] + 1;\n"
      "    const compute_t larger = scale * growth;\n"
      "    if (found_inf != 0) scale *= backoff;\n"
      "    else if (grown == interval && isfinite(larger)) scale = larger;\n"
      "    tracker_at[0] = grown == interval ? 0 : grown;\n",
      {{"scale", scale, true, true},
       {"tracker", tracker, false, true, true},
       {"found_inf", found, true, false, true}},
      {{"growth", {growth_factor}},
       {"backoff", {backoff_factor}},
       {"interval", {static_cast<double>(growth_interval)}}});
  TORCH_INTERNAL_ASSERT(is_done);  // of one element
  return current_scale;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_adam_", TORCH_FN((fused_adam<double, false>)));
  m.impl("_fused_adam_.tensor_lr",
         TORCH_FN((fused_adam<const Tensor&, false>)));
  m.impl("_fused_adamw_", TORCH_FN((fused_adam<double, true>)));
  m.impl("_fused_adamw_.tensor_lr",
         TORCH_FN((fused_adam<const Tensor&, true>)));
  m.impl("_fused_sgd_", TORCH_FN(fused_sgd<double>));
  m.impl("_fused_sgd_.tensor_lr", TORCH_FN(fused_sgd<const Tensor&>));
  m.impl("_fused_adagrad_", TORCH_FN(fused_adagrad<double>));
  m.impl("_fused_adagrad_.tensor_lr", TORCH_FN(fused_adagrad<const Tensor&>));
  m.impl("_amp_foreach_non_finite_check_and_unscale_", TORCH_FN(amp_unscale));
  m.impl("_amp_update_scale_", TORCH_FN(amp_update_scale));
}

}  // namespace torch_opencl::ops
