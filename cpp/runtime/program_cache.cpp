#include "program_cache.h"

#include "argument_access.h"
#include "build_report.h"
#include "config.h"
#include "disk_cache.h"
#include "error.h"
#include "growing_table.h"
#include "quirks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

namespace torch_opencl::runtime {
namespace {

constexpr size_t kMaxDefines = 32;

// Pointers and integers only: hashed and compared without touching strings.
struct Key {
  const KernelSource* source;
  const char* kernel_name;
  size_t count;
  std::array<const char*, kMaxDefines> names;
  std::array<int64_t, kMaxDefines> values;

  bool operator==(const Key& other) const {
    return source == other.source && kernel_name == other.kernel_name &&
           count == other.count &&
           std::equal(
               names.begin(), names.begin() + count, other.names.begin()) &&
           std::equal(
               values.begin(), values.begin() + count, other.values.begin());
  }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t value = reinterpret_cast<uintptr_t>(key.source);
    const auto mix = [&value](uint64_t more) {
      value = (value ^ more) * 0x9E3779B97F4A7C15ull;
      value ^= value >> 32;
    };
    mix(reinterpret_cast<uintptr_t>(key.kernel_name));
    for (size_t i = 0; i < key.count; ++i) {
      mix(reinterpret_cast<uintptr_t>(key.names[i]));
      mix(static_cast<uint64_t>(key.values[i]));
    }
    return value;
  }
};

}  // namespace

struct ProgramCache::Impl {
  explicit Impl(Device& owner)
      : device(owner),
        disk(default_cache_directory(), config().cache_size_mib << 20) {
    const DeviceInfo& info = owner.info();
    // CL1.2 everywhere: the kernels need no more, and it is what every driver
    // offers. No warnings: PoCL counts them on stderr.
    options = "-cl-std=CL1.2 -w";
    if (info.has_correctly_rounded_division) {
      options += " -cl-fp32-correctly-rounded-divide-sqrt";
    }
    options += quirk_options(info);
    if (!config().build_options.empty()) {
      options += " " + config().build_options;
    }
    identity = identity_of(info);
  }

  cl_program build(const std::string& name,
                   const std::string& text,
                   const std::string& all_options);
  cl_program from_binary(const std::string& key,
                         const std::string& all_options);
  void store_binary(const std::string& key, cl_program program);
  std::string find_access(const std::string& name,
                          const std::string& text,
                          const char* kernel_name,
                          const std::string& all_options);
  [[noreturn]] void fail(int code,
                         const std::string& name,
                         const std::string& text,
                         const std::string& all_options,
                         cl_program program);
  Kernel& kernel_of(const std::string& name,
                    const std::string& text,
                    const char* kernel_name,
                    const std::string& extra_options);

  Device& device;
  DiskCache disk;
  std::string options;
  std::string identity;

  GrowingTable<Key, Kernel*, KeyHash> kernels;

  std::mutex build_mutex;  // everything below
  std::unordered_map<std::string, cl_program> programs;
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_by_name;
  std::unordered_map<std::string, std::unique_ptr<std::string>> names;
  Statistics statistics;
};

cl_program ProgramCache::Impl::from_binary(const std::string& key,
                                           const std::string& all_options) {
  bool damaged = false;
  const auto binary = disk.load(key, &damaged);
  cl_program program = nullptr;
  if (binary.has_value()) {
    const size_t size = binary->size();
    const unsigned char* bytes = binary->data();
    const cl_device_id id = device.id();
    cl_int status = CL_SUCCESS;
    cl_int code = CL_SUCCESS;
    program = api().clCreateProgramWithBinary(
        device.context(), 1, &id, &size, &bytes, &status, &code);
    if (code == CL_SUCCESS && status == CL_SUCCESS &&
        api().clBuildProgram(
            program, 1, &id, all_options.c_str(), nullptr, nullptr) ==
            CL_SUCCESS) {
      ++statistics.loaded;
      return program;
    }
    if (program != nullptr) {
      api().clReleaseProgram(program);
    }
    damaged = true;
  }
  if (damaged) {
    ++statistics.damaged;
    disk.remove(key);
  }
  return nullptr;
}

void ProgramCache::Impl::store_binary(const std::string& key,
                                      cl_program program) {
  size_t size = 0;
  if (api().clGetProgramInfo(
          program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, nullptr) !=
          CL_SUCCESS ||
      size == 0) {
    return;
  }
  std::vector<unsigned char> binary(size);
  unsigned char* bytes = binary.data();
  if (api().clGetProgramInfo(
          program, CL_PROGRAM_BINARIES, sizeof(bytes), &bytes, nullptr) ==
      CL_SUCCESS) {
    disk.store(key, binary);
  }
}

void ProgramCache::Impl::fail(int code,
                              const std::string& name,
                              const std::string& text,
                              const std::string& all_options,
                              cl_program program) {
  const std::string log = build_log(program, device.id());
  log_opencl_error(api().clReleaseProgram(program), "clReleaseProgram");
  const bool lacks_float64 =
      !device.info().has_fp64 && (log.find("float64") != std::string::npos ||
                                  log.find("double") != std::string::npos);
  throw BuildError(
      "Building the OpenCL kernel '" + name + "' for " + device.info().name +
      " (" + device.info().platform_name + ", driver " +
      device.info().driver_version + ") failed: " + std::to_string(code) +
      " (" + error_name(code) + ")" +
      (lacks_float64 ? ": the device has no float64 (double)" : "") +
      "\noptions: " + all_options + "\ncompiler log:\n" + log + "\nsource:\n" +
      source_excerpt(text, log));
}

namespace {

// Options that programs and notes are stored by.
std::string without_asking(std::string options) {
  const std::string asking = std::string(" ") + kArgumentOption;
  const size_t at = options.find(asking);
  return at == std::string::npos ? options : options.erase(at, asking.size());
}

}  // namespace

cl_program ProgramCache::Impl::build(const std::string& name,
                                     const std::string& text,
                                     const std::string& all_options) {
  const std::string stored_options = without_asking(all_options);
  const bool asks = stored_options != all_options;
  const std::string key = identity + "\n" + stored_options + "\n" + text;
  const int64_t debug = config().debug;
  cl_program stored = asks ? nullptr : from_binary(key, all_options);
  if (stored != nullptr) {
    if (debug >= 3) {
      std::fprintf(
          stderr, "torch_opencl: %s from the disk cache\n", name.c_str());
    }
    return stored;
  }
  const auto start = std::chrono::steady_clock::now();
  const char* source = text.c_str();
  const size_t size = text.size();
  const cl_device_id id = device.id();
  cl_int code = CL_SUCCESS;
  cl_program program = api().clCreateProgramWithSource(
      device.context(), 1, &source, &size, &code);
  if (code != CL_SUCCESS) {
    throw_opencl_error(code, "clCreateProgramWithSource", __FILE__, __LINE__);
  }
  if (debug >= 4) {
    std::fprintf(
        stderr, "torch_opencl: source of %s:\n%s\n", name.c_str(), source);
  }
  code = api().clBuildProgram(
      program, 1, &id, all_options.c_str(), nullptr, nullptr);
  if (code != CL_SUCCESS) {
    fail(code, name, text, all_options, program);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  ++statistics.built;
  statistics.build_seconds += seconds;
  if (debug >= 3) {
    std::fprintf(stderr,
                 "torch_opencl: built %s in %.0f ms: %s\n",
                 name.c_str(),
                 seconds * 1e3,
                 all_options.c_str());
  }
  if (debug >= 4) {
    std::fprintf(stderr, "%s\n", build_log(program, id).c_str());
  }
  store_binary(key, program);
  return program;
}

// From disk, or of a program that is built for it: binaries do not tell.
std::string ProgramCache::Impl::find_access(const std::string& name,
                                            const std::string& text,
                                            const char* kernel_name,
                                            const std::string& all_options) {
  const std::string key = "access of " + std::string(kernel_name) + "\n" +
                          identity + "\n" + without_asking(all_options) + "\n" +
                          text;
  bool damaged = false;
  if (const auto note = disk.load(key, &damaged)) {
    return {note->begin(), note->end()};
  }
  std::string asking = all_options;
  if (asking.find(kArgumentOption) == std::string::npos) {
    asking += " " + std::string(kArgumentOption);
  }
  cl_program& program = programs[asking + "\n" + text];
  if (program == nullptr) {
    program = build(name, text, asking);
    programs.try_emplace(all_options + "\n" + text, program);
  }
  cl_int code = CL_SUCCESS;
  const cl_kernel kernel = api().clCreateKernel(program, kernel_name, &code);
  if (code != CL_SUCCESS) {
    return "";  // the caller says what is wrong
  }
  const std::string access = argument_access(kernel);
  log_opencl_error(api().clReleaseKernel(kernel), "clReleaseKernel");
  disk.store(key, {access.begin(), access.end()});
  return access;
}

Kernel& ProgramCache::Impl::kernel_of(const std::string& name,
                                      const std::string& text,
                                      const char* kernel_name,
                                      const std::string& extra_options) {
  const std::string all_options =
      extra_options.empty() ? options : options + " " + extra_options;
  const std::string program_key = all_options + "\n" + text;
  const std::lock_guard lock(build_mutex);
  std::unique_ptr<Kernel>& slot =
      kernels_by_name[std::string(kernel_name) + "\n" + program_key];
  if (slot == nullptr) {
    std::string access;
    if (config().guard) {
      access = find_access(name, text, kernel_name, all_options);
    }
    cl_program& program = programs[program_key];
    if (program == nullptr) {
      program = build(name, text, all_options);
    }
    cl_int code = CL_SUCCESS;
    cl_kernel handle = api().clCreateKernel(program, kernel_name, &code);
    if (code != CL_SUCCESS) {
      throw OpenCLError(code,
                        "The OpenCL program '" + name + "' has no kernel '" +
                            kernel_name + "': " + error_name(code));
    }
    std::unique_ptr<std::string>& stored = names[name + ":" + kernel_name];
    if (stored == nullptr) {
      stored = std::make_unique<std::string>(name + ":" + kernel_name);
    }
    slot = std::make_unique<Kernel>();
    slot->handle = handle;
    slot->access = std::move(access);
    slot->name = stored->c_str();
  }
  return *slot;
}

std::string Define::text() const {
  if (kind == Kind::kOption) {
    return value != 0 ? name : "";
  }
  return "-D " + std::string(name) + "=" +
         (kind == Kind::kDType ? dtype_name(static_cast<DType>(value))
                               : std::to_string(value));
}

ProgramCache::ProgramCache(Device& device)
    : impl_(std::make_unique<Impl>(device)) {}

ProgramCache::~ProgramCache() = default;

Kernel& ProgramCache::get(const KernelSource& source,
                          const char* kernel_name,
                          std::span<const Define> defines) {
  if (defines.size() > kMaxDefines) {
    throw Error(std::string(source.name) + ": more than " +
                std::to_string(kMaxDefines) + " defines");
  }
  Key key{&source, kernel_name, defines.size(), {}, {}};
  size_t i = 0;
  for (const Define& define : defines) {
    key.names[i] = define.name;
    key.values[i++] = define.value;
  }
  return *impl_->kernels.find(key, [&] {
    std::string options;
    for (const Define& define : defines) {
      const std::string text = define.text();
      options += (options.empty() || text.empty() ? "" : " ") + text;
    }
    return &impl_->kernel_of(source.name, source.text, kernel_name, options);
  });
}

Kernel& ProgramCache::get_generated(const std::string& name,
                                    const std::string& text,
                                    const std::string& kernel_name,
                                    const std::string& options) {
  return impl_->kernel_of(name, text, kernel_name.c_str(), options);
}

cl_program ProgramCache::build_released(const std::string& name,
                                        const std::string& text) {
  const std::lock_guard lock(impl_->build_mutex);
  return impl_->build(name, text, impl_->options);
}

ProgramCache::Statistics ProgramCache::statistics() const {
  const std::lock_guard lock(impl_->build_mutex);
  return impl_->statistics;
}

}  // namespace torch_opencl::runtime
