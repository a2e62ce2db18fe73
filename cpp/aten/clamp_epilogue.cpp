#include "clamp_epilogue.h"

#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace torch_opencl::aten {
namespace {

class Clampable : public runtime::PendingLaunch {
 public:
  using PendingLaunch::PendingLaunch;
  virtual bool writes(const at::TensorBase& out) const = 0;
  virtual void clamp(const ClampBounds& bounds) = 0;
};

template <class Number>
class ClampableLaunch : public Clampable {
 public:
  ClampableLaunch(const char* op,
                  const at::Tensor& out,
                  const runtime::KernelLaunch& launch,
                  const ClampArguments<Number>& arguments,
                  TensorReferences tensors)
      : Clampable(op),
        launch_(launch),
        arguments_(arguments),
        address_(out.const_data_ptr()),
        elements_(out.numel()),
        dtype_(out.scalar_type()) {
    storages_.push_back(out.storage());
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) {
        storages_.push_back(tensor.storage());
      }
    }
  }

  // Whatever its shape: dense tensors of as many elements from the same address
  // have the same elements.
  bool writes(const at::TensorBase& out) const override {
    return out.numel() == elements_ && out.scalar_type() == dtype_ &&
           out.const_data_ptr() == address_ &&
           out.is_non_overlapping_and_dense();
  }

  void clamp(const ClampBounds& bounds) override {
    launch_.set(arguments_.lower_index, static_cast<Number>(bounds.lower));
    launch_.set(arguments_.upper_index, static_cast<Number>(bounds.upper));
  }

  void enqueue(runtime::Queue& queue) const override { launch_.enqueue(queue); }

 private:
  runtime::KernelLaunch launch_;
  ClampArguments<Number> arguments_;
  const void* address_;
  int64_t elements_;
  at::ScalarType dtype_;
  c10::SmallVector<c10::Storage, 8> storages_;
};

}  // namespace

template <class Number>
void launch_clampable(const char* op,
                      const at::Tensor& out,
                      const runtime::KernelLaunch& launch,
                      const ClampArguments<Number>& arguments,
                      TensorReferences tensors) {
  runtime::Queue& queue = queue_of(out);
  // Half types would be rounded twice. Of a result with gaps, tensors of its
  // size from its address may have other elements.
  if (!queue.can_pend() ||
      compute_type(out.scalar_type()) != out.scalar_type() ||
      !out.is_non_overlapping_and_dense()) {
    queue.flush_pending();
    launch.enqueue(queue);
    return;
  }
  queue.pend(std::make_unique<ClampableLaunch<Number>>(
      op, out, launch, arguments, tensors));
}

template void launch_clampable(const char*,
                               const at::Tensor&,
                               const runtime::KernelLaunch&,
                               const ClampArguments<float>&,
                               TensorReferences);
template void launch_clampable(const char*,
                               const at::Tensor&,
                               const runtime::KernelLaunch&,
                               const ClampArguments<double>&,
                               TensorReferences);

bool join_clamp(const at::TensorBase& out, const ClampBounds& bounds) {
  runtime::Queue& queue = queue_of(out);
  const bool joined = queue.join_pending([&](runtime::PendingLaunch& pending) {
    auto* launch = dynamic_cast<Clampable*>(&pending);
    if (launch == nullptr || !launch->writes(out)) {
      return false;
    }
    launch->clamp(bounds);
    return true;
  });
  if (joined) {
    queue.flush_pending();
  }
  return joined;
}

}  // namespace torch_opencl::aten
