// What concerns the backend as a whole; collectives.cpp has its operations.
#include "backend.h"

namespace torch_opencl::distributed {

StagedBackend::StagedBackend(BackendPointer inner, std::string name)
    : Backend(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      name_(std::move(name)) {
  init();
}

StagedBackend::~StagedBackend() = default;

void StagedBackend::abort() {
  progress_.abort();
  inner_->abort();
}

void StagedBackend::shutdown() {
  progress_.close();
  inner_->shutdown();
}

void StagedBackend::startCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  TORCH_CHECK(!coalesced_.has_value(), name_, ": already coalescing");
  coalesced_.emplace();
}

WorkPointer StagedBackend::endCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  TORCH_CHECK(coalesced_.has_value(), name_, ": not coalescing");
  auto work = c10::make_intrusive<CoalescedWork>(rank_, std::move(*coalesced_));
  coalesced_.reset();
  return work;
}

std::unique_ptr<Staging> StagedBackend::stage(const char* operation) {
  return std::make_unique<Staging>(streams_, operation);
}

WorkPointer StagedBackend::submit(c10d::OpType type,
                                  const char* operation,
                                  std::unique_ptr<Staging> staging,
                                  StagedWork::Launch launch) {
  staging->start();
  auto work = c10::make_intrusive<StagedWork>(rank_,
                                              type,
                                              name_ + ':' + operation,
                                              std::move(staging),
                                              std::move(launch));
  progress_.submit(work);
  if (!c10d::isP2POp(type)) {
    ++sequence_;
  }
  const std::lock_guard lock(coalescing_mutex_);
  if (coalesced_.has_value()) {
    coalesced_->push_back(work);
  }
  return work;
}

}  // namespace torch_opencl::distributed
