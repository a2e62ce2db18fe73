// What the choice of kernels needs to know of a device and cannot ask it:
// numbers of a model, and which solver is the fastest for a problem. Entries
// come from backend/tuning and from a user's file. One is of a device, an
// architecture, a vendor, a class or all devices. The narrowest takes
// precedence, and a user's over those of backend/tuning.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch_opencl::runtime {

struct DeviceInfo;

// From the widest to the narrowest.
enum class TuningLevel : uint8_t {
  kAll,
  kClass,         // "cpu" or "gpu"
  kVendor,        // part of CL_DEVICE_VENDOR
  kArchitecture,  // DeviceInfo::architecture
  kDevice         // CL_DEVICE_NAME
};

// Of GPUs. A unit is what runs a work-group by itself.
struct TuningNumbers {
  // What a unit could have multiplied meanwhile: for a float from memory, for
  // one from the caches, and for another launch.
  double product_float_of_memory = 0;
  double product_float_of_cache = 0;
  double product_launch = 0;
  // A unit with fewer work-groups waits at barriers, and takes so many times as
  // long.
  double product_groups_of_unit = 0;
  double product_alone = 0;
  // Work-groups that hide a unit's loads: of products with few rows, and of
  // attention with one query, for which units are CL_DEVICE_MAX_COMPUTE_UNITS.
  double few_groups_of_unit = 0;
  double attention_groups_of_unit = 0;
  // Elements of a recurrent weight that a unit reads from the GPU's cache in
  // about the time of a launch.
  double recurrence_weight_of_unit = 0;
};

// Of "all", "class", "vendor", "architecture" or "device"; throws Error for
// another text.
TuningLevel tuning_level(const std::string& text);

std::map<std::string, double> named(const TuningNumbers& numbers);

struct TuningEntry {
  TuningLevel level;
  std::string name;  // whose it is; empty where it is of all devices
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::pair<std::string, std::string>> choices;
};

struct Tuning {
  TuningNumbers numbers;
  std::unordered_map<std::string, std::string> choices;  // problem -> solver
};

// The entries of backend/tuning, in a generated file.
std::vector<TuningEntry> shipped_tuning();

// Adds entries of the user's, for devices that are discovered afterwards: all
// of them, or none where it throws Error for a number that is not one of
// TuningNumbers, or not from 1 to 1e9.
void add_tuning(const std::vector<TuningEntry>& entries);

// What all entries say of `device`, the later ones of a level before the
// earlier. Throws Error as add_tuning does.
Tuning tuning_of(const DeviceInfo& device);

}  // namespace torch_opencl::runtime
