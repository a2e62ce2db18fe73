#include "fft_plan.h"

#ifdef TORCH_OPENCL_VKFFT
#include "error.h"
#include "vkfft.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <tuple>
#endif

namespace torch_opencl::runtime {

bool has_fft_radixes(int64_t length) {
  for (const int64_t prime : {2, 3, 5, 7, 11, 13}) {
    while (length > 0 && length % prime == 0) {
      length /= prime;
    }
  }
  return length == 1;
}

#ifndef TORCH_OPENCL_VKFFT

bool has_fft() {
  return false;
}
std::shared_ptr<FftPlan> fft_plan(Queue&, const FftProblem&) {
  return nullptr;
}

#else

namespace {

// Makes the hooks of vkfft.h serve this thread's next calls.
class Hooked {
 public:
  Hooked(Device& device, Queue* queue) {
    call_.device = &device;
    call_.queue = queue;
    vkfft::current = &call_;
  }
  ~Hooked() { vkfft::current = nullptr; }
  Hooked(const Hooked&) = delete;

  size_t bytes() const { return call_.bytes; }
  // Raises what a hook has caught.
  void check() const {
    if (call_.error != nullptr) {
      std::rethrow_exception(call_.error);
    }
  }

 private:
  vkfft::Call call_;
};

class VkPlan final : public FftPlan {
 public:
  VkPlan(Queue& queue, const FftProblem& problem)
      : device_(queue.device()),
        id_(device_.id()),
        context_(device_.context()),
        problem_(problem) {
    // Of lengths with large primes VkFFT's factors are computed by kernels.
    const Hooked hooked(device_, &queue);
    const vkfft::LocaleC locale;
    result_ = initializeVkFFT(&application_, configuration());
    hooked.check();
    bytes_ = hooked.bytes();
  }

  ~VkPlan() override {
    if (result_ == VKFFT_SUCCESS) {
      const Hooked hooked(device_, nullptr);
      deleteVkFFT(&application_);
    }
  }

  // Lines that do not fit local memory take several passes: of half spectra to
  // real numbers VkFFT 1.2.26 reads and writes out of bounds in them.
  bool is_usable() const {
    return result_ == VKFFT_SUCCESS &&
           (problem_.kind != FftKind::kToReal ||
            application_.localFFTPlan_inverse->numAxisUploads[0] == 1);
  }
  size_t bytes() const override { return bytes_; }

  void enqueue(Queue& queue,
               const BufferView& in,
               size_t in_bytes,
               const BufferView& out,
               size_t out_bytes) override {
    queue.check_not_capturing();  // VkFFT enqueues its kernels by itself
    queue.flush_pending();
    const std::lock_guard lock(mutex_);
    const Hooked hooked(device_, &queue);
    cl_command_queue handle = nullptr;  // kernels go to `queue`
    cl_mem source = in.memory;
    cl_mem target = out.memory;
    VkFFTLaunchParams parameters = {};
    parameters.commandQueue = &handle;
    const bool is_to_real = problem_.kind == FftKind::kToReal;
    // What VkFFT calls the buffer is the complex array that it works in.
    parameters.buffer = is_to_real ? &source : &target;
    parameters.bufferOffset =
        is_to_real ? in.offset * in_bytes : out.offset * out_bytes;
    if (is_to_real) {
      parameters.outputBuffer = &target;
      parameters.outputBufferOffset = out.offset * out_bytes;
    } else if (!problem_.is_in_place) {
      parameters.inputBuffer = &source;
      parameters.inputBufferOffset = in.offset * in_bytes;
    }
    const VkFFTResult result =
        VkFFTAppend(&application_, is_forward() ? -1 : 1, &parameters);
    hooked.check();
    if (result != VKFFT_SUCCESS) {
      throw Error("VkFFT could not enqueue a transform: error " +
                  std::to_string(result));
    }
    queue.wrote(in.written);
    queue.wrote(out.written);
  }

 private:
  bool is_forward() const {
    return problem_.kind == FftKind::kFromReal ||
           (problem_.kind == FftKind::kComplex && problem_.is_forward);
  }

  VkFFTConfiguration configuration() {
    VkFFTConfiguration c = {};
    c.device = &id_;
    c.context = &context_;
    c.FFTdim = problem_.dimensions;
    c.numberBatches = problem_.batch;
    for (int d = 0; d < problem_.dimensions; ++d) {
      c.size[d] = problem_.sizes[d];
    }
    c.omitDimension[0] = problem_.skips_innermost;
    c.doublePrecision = problem_.is_double;
    c.useLUT = 1;  // exact factors: kernels' sines may be fast and wrong
    c.normalize = problem_.normalizes;
    c.specifyOffsetsAtLaunch = 1;
    // VkFFT's own rule counts neither batches nor where a buffer is begun at.
    c.useUint64 = problem_.is_large;
    c.makeForwardPlanOnly = is_forward();
    c.makeInversePlanOnly = !is_forward();
    c.performR2C = problem_.kind != FftKind::kComplex;
    // A pair of real rows made one complex transform: what is small or finite
    // in one is lost beside what is large or NaN in the other.
    c.disableMergeSequencesR2C = 1;
    if (problem_.kind == FftKind::kFromReal) {
      c.isInputFormatted = 1;
      set_strides(c.inputBufferStride, problem_.sizes[0]);
      set_strides(c.bufferStride, problem_.sizes[0] / 2 + 1);
    } else if (problem_.kind == FftKind::kToReal) {
      c.isOutputFormatted = 1;
      set_strides(c.outputBufferStride, problem_.sizes[0]);
      set_strides(c.bufferStride, problem_.sizes[0] / 2 + 1);
    } else {
      set_strides(c.bufferStride, problem_.sizes[0]);
      if (!problem_.is_in_place) {
        c.isInputFormatted = 1;
        set_strides(c.inputBufferStride, problem_.sizes[0]);
      }
    }
    return c;
  }

  void set_strides(uint64_t* strides, int64_t innermost) const {
    strides[0] = innermost;
    strides[1] = strides[0] * problem_.sizes[1];
    strides[2] = strides[1] * problem_.sizes[2];
  }

  Device& device_;
  cl_device_id id_;
  cl_context context_;
  FftProblem problem_;
  std::mutex mutex_;  // arguments of its kernels
  VkFFTApplication application_ = {};
  VkFFTResult result_ = VKFFT_SUCCESS;
  size_t bytes_ = 0;
};

// Plans of all queues, those used last in front. Temporaries belong to a plan,
// so queues do not share them.
class PlanCache {
 public:
  std::shared_ptr<FftPlan> find(Queue& queue, const FftProblem& problem) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(plans_.begin(), plans_.end(), [&](const Entry& entry) {
          return entry.queue == &queue && entry.problem == problem;
        });
    if (found != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, found);
      return found->plan;
    }
    auto plan = std::make_shared<VkPlan>(queue, problem);
    if (!plan->is_usable()) {
      plan = nullptr;
    }
    plans_.push_front({&queue, problem, plan});
    drop_oldest();
    return plan;
  }

 private:
  static constexpr size_t kMostPlans = 128;
  static constexpr size_t kMostBytes = size_t{256} << 20;

  struct Entry {
    Queue* queue;
    FftProblem problem;
    std::shared_ptr<FftPlan> plan;  // null: not to be had
  };

  // Commands that are enqueued keep what they use.
  void drop_oldest() {
    size_t bytes = 0, count = 0;
    for (auto entry = plans_.begin(); entry != plans_.end();) {
      bytes += entry->plan == nullptr ? 0 : entry->plan->bytes();
      const bool is_kept =
          ++count == 1 || (count <= kMostPlans && bytes <= kMostBytes);
      entry = is_kept ? std::next(entry) : plans_.erase(entry);
    }
  }

  std::mutex mutex_;
  std::list<Entry> plans_;
};

}  // namespace

bool has_fft() {
  return true;
}

std::shared_ptr<FftPlan> fft_plan(Queue& queue, const FftProblem& problem) {
  for (int d = problem.skips_innermost; d < problem.dimensions; ++d) {
    if (!has_fft_radixes(problem.sizes[d])) {
      return nullptr;
    }
  }
  static auto* cache = new PlanCache();
  return cache->find(queue, problem);
}

#endif

}  // namespace torch_opencl::runtime
