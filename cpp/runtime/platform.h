// Discovery of drivers: the OpenCL loader and what it does not see.
#pragma once

#include "device.h"

namespace torch_opencl::runtime {

struct DiscoveredDevice {
  cl_platform_id platform;
  cl_device_id id;
  DeviceInfo info;
};

// Every device of every driver, in the default order: GPUs, accelerators,
// CPUs; among CPUs Intel's runtime, then PoCL, then the rest. Never throws;
// writes what it met to `log`.
std::vector<DiscoveredDevice> discover(const std::vector<std::string>& prefixes,
                                       std::vector<std::string>& log) noexcept;

// Whether drivers have started threads of their own while being asked for
// their devices (PoCL does): these do not survive a fork().
bool discovery_started_threads() noexcept;

}  // namespace torch_opencl::runtime
