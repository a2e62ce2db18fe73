#include "large_registers.h"

#include "../../cpp/runtime/error.h"
#include "kernel_sources.h"

#include <ATen/ops/empty.h>

#include <cstdio>
#include <map>
#include <mutex>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;

namespace {

// Xe-HPG is version 12.55.
bool may_have_them(const runtime::DeviceInfo& info) {
  int major = 0, minor = 0;
  return std::sscanf(info.architecture.c_str(), "xe_%d.%d", &major, &minor) ==
             2 &&
         (major > 12 || (major == 12 && minor >= 55));
}

bool builds(const at::TensorBase& on) {
  const at::Tensor out = at::empty({1}, on.options().dtype(at::kFloat));
  try {
    static_cast<void>(
        launch_record(out,
                      sources::range,
                      "arange",
                      {{"DTYPE", dtype_of(out)},
                       runtime::Define::option(kLargeRegisters, true)},
                      aten::range(1, 64),
                      arg(out),
                      uint64_t{1},
                      0.0F,
                      1.0F));
    return true;
  } catch (const runtime::BuildError&) {
    return false;
  }
}

}  // namespace

bool takes_large_registers(const at::TensorBase& on) {
  static std::mutex mutex;
  static std::map<int, bool> known;  // by device
  if (!may_have_them(aten::device_of(on).info())) {
    return false;
  }
  const std::lock_guard lock(mutex);
  const int device = on.device().index();
  const auto found = known.find(device);
  return found != known.end() ? found->second
                              : known.emplace(device, builds(on)).first->second;
}

}  // namespace torch_opencl::ops
