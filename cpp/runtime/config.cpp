#include "config.h"

#include "error.h"

#include <cstdlib>
#include <cstring>

namespace torch_opencl::runtime {

const std::vector<ConfigEntry>& config_entries() {
  static const auto* entries = new std::vector<ConfigEntry>{
      {"TORCH_OPENCL_DEVICES",
       "",
       "Devices to use and their order: comma-separated indices or parts of "
       "\"platform / version / device\" names, e.g. `pocl` or `1,0`. Empty: "
       "all, GPUs "
       "first."},
      {"TORCH_OPENCL_DEVICE_CLASS",
       "",
       "`cpu` or `gpu` forces the family of kernels; empty: by device type."},
      {"TORCH_OPENCL_REGISTERS",
       "",
       "`wide` or `narrow` forces CPUs' tiles for 32 registers of 16 floats or "
       "for fewer; empty: wide with AVX-512."},
      {"TORCH_OPENCL_MATRIX_UNITS",
       "1",
       "0: products and attention of float16 and bfloat16 leave a GPU's matrix "
       "units idle."},
      {"TORCH_OPENCL_TUNING",
       "",
       "A JSON file of `python -m torch_opencl.tune --export`: the algorithms "
       "that were the fastest on a device. Read when torch is imported."},
      {"TORCH_OPENCL_CACHE_DIR",
       "",
       "Directory of compiled programs. Empty: `torch_opencl` in "
       "`$XDG_CACHE_HOME` or `~/.cache`."},
      {"TORCH_OPENCL_CACHE_SIZE_MIB",
       "1024",
       "Limit of that directory in MiB; 0 keeps nothing on disk."},
      {"TORCH_OPENCL_BUILD_OPTIONS",
       "",
       "Options appended to every kernel build."},
      {"TORCH_OPENCL_FALLBACK",
       "warn",
       "An op without a kernel runs on the CPU: `warn` once an op, `silent`, "
       "or `error` instead."},
      {"TORCH_OPENCL_DEBUG",
       "0",
       "1: devices; 2: launches; 3: program builds and cache hits; 4: sources "
       "and build logs."},
      {"TORCH_OPENCL_SYNC",
       "0",
       "1: wait after every launch, so that an error names its kernel."},
      {"TORCH_OPENCL_GUARD",
       "0",
       "1: bands around every block, checked at each wait: finds kernels that "
       "write outside of their tensors. Slow."},
      {"TORCH_OPENCL_AS_CUDA",
       "0",
       "1: \"cuda\" names the opencl device, as after torch_opencl.as_cuda()."},
  };
  return *entries;
}

namespace {

std::string read(const char* name) {
  if (const char* value = std::getenv(name)) {
    return value;
  }
  for (const ConfigEntry& entry : config_entries()) {
    if (std::strcmp(entry.name, name) == 0) {
      return entry.default_value;
    }
  }
  return "";
}

[[noreturn]] void reject(const char* name,
                         const std::string& value,
                         const char* wanted) {
  throw Error(std::string(name) + "=" + value + " is not valid: expected " +
              wanted);
}

int64_t read_number(const char* name, int64_t low, int64_t high) {
  const std::string text = read(name);
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < low || value > high) {
    const std::string wanted =
        "a number from " + std::to_string(low) + " to " + std::to_string(high);
    reject(name, text, wanted.c_str());
  }
  return value;
}

std::string read_choice(const char* name,
                        std::initializer_list<const char*> choices,
                        const char* wanted) {
  const std::string text = read(name);
  for (const char* choice : choices) {
    if (text == choice) {
      return text;
    }
  }
  reject(name, text, wanted);
}

Config read_all() {
  Config config;
  config.devices = read("TORCH_OPENCL_DEVICES");
  config.device_class = read_choice(
      "TORCH_OPENCL_DEVICE_CLASS", {"", "cpu", "gpu"}, "cpu or gpu");
  config.registers = read_choice(
      "TORCH_OPENCL_REGISTERS", {"", "wide", "narrow"}, "wide or narrow");
  config.cache_dir = read("TORCH_OPENCL_CACHE_DIR");
  config.cache_size_mib =
      read_number("TORCH_OPENCL_CACHE_SIZE_MIB", 0, int64_t(1) << 30);
  config.build_options = read("TORCH_OPENCL_BUILD_OPTIONS");
  config.fallback = read_choice("TORCH_OPENCL_FALLBACK",
                                {"warn", "error", "silent"},
                                "warn, error or silent");
  config.debug = read_number("TORCH_OPENCL_DEBUG", 0, 4);
  config.sync = read_number("TORCH_OPENCL_SYNC", 0, 1) != 0;
  config.guard = read_number("TORCH_OPENCL_GUARD", 0, 1) != 0;
  config.matrix_units = read_number("TORCH_OPENCL_MATRIX_UNITS", 0, 1) != 0;
  read_number(
      "TORCH_OPENCL_AS_CUDA", 0, 1);  // Python's, checked with the others
  return config;
}

}  // namespace

const Config& read_config() {
  return *new Config(read_all());
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace torch_opencl::runtime
