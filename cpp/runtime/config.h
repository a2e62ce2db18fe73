// Every TORCH_OPENCL_* environment variable: the only getenv in the project.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch_opencl::runtime {

struct Config {
  std::string devices;        // TORCH_OPENCL_DEVICES
  std::string device_class;   // TORCH_OPENCL_DEVICE_CLASS: "", "cpu", "gpu"
  std::string registers;      // TORCH_OPENCL_REGISTERS: "", "wide", "narrow"
  std::string cache_dir;      // TORCH_OPENCL_CACHE_DIR
  int64_t cache_size_mib;     // TORCH_OPENCL_CACHE_SIZE_MIB, 0 disables
  std::string build_options;  // TORCH_OPENCL_BUILD_OPTIONS
  std::string fallback;       // TORCH_OPENCL_FALLBACK: warn, error, silent
  int64_t debug;              // TORCH_OPENCL_DEBUG: 0..4
  bool sync;                  // TORCH_OPENCL_SYNC
  bool guard;                 // TORCH_OPENCL_GUARD
  bool matrix_units;          // TORCH_OPENCL_MATRIX_UNITS
};

const Config& read_config();
// Read once, at the first call. A failed read throws and is tried again.
inline const Config& config() {
  static const Config& settings = read_config();
  return settings;
}

// Any other variable (HOME, XDG_CACHE_HOME); empty when unset.
std::string environment(const char* name);

struct ConfigEntry {
  const char* name;
  const char* default_value;
  const char* description;
};
// One row a variable: the table of docs/environment.md and `diagnose` print it.
const std::vector<ConfigEntry>& config_entries();

}  // namespace torch_opencl::runtime
