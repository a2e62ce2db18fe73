#include "tuning.h"

#include "device.h"
#include "error.h"

#include <array>
#include <mutex>
#include <string_view>

namespace torch_opencl::runtime {

namespace {

using Number = double TuningNumbers::*;

constexpr std::array<std::pair<std::string_view, Number>, 8> kNumbers = {{
    {"product_float_of_memory", &TuningNumbers::product_float_of_memory},
    {"product_float_of_cache", &TuningNumbers::product_float_of_cache},
    {"product_launch", &TuningNumbers::product_launch},
    {"product_groups_of_unit", &TuningNumbers::product_groups_of_unit},
    {"product_alone", &TuningNumbers::product_alone},
    {"few_groups_of_unit", &TuningNumbers::few_groups_of_unit},
    {"attention_groups_of_unit", &TuningNumbers::attention_groups_of_unit},
    {"recurrence_weight_of_unit", &TuningNumbers::recurrence_weight_of_unit},
}};

Number number_of(const std::string& name, double value) {
  std::string known;
  for (const auto& [text, number] : kNumbers) {
    if (text == name) {
      if (value >= 1 && value <= 1e9) {
        return number;
      }
      throw Error(name + " is " + std::to_string(value) +
                  "; expected a number from 1 to 1e9");
    }
    known += (known.empty() ? "" : ", ") + std::string(text);
  }
  throw Error("there is no number " + name + "; expected one of " + known);
}

bool is_of(const TuningEntry& entry, const DeviceInfo& device) {
  switch (entry.level) {
    case TuningLevel::kAll:
      return true;
    case TuningLevel::kClass:
      return entry.name ==
             (device.device_class == DeviceClass::kCpu ? "cpu" : "gpu");
    case TuningLevel::kVendor:
      return device.vendor.find(entry.name) != std::string::npos;
    case TuningLevel::kArchitecture:
      return device.architecture == entry.name;
    case TuningLevel::kDevice:
      return device.name == entry.name;
  }
  return false;
}

void apply(const std::vector<TuningEntry>& entries,
           const DeviceInfo& device,
           Tuning& tuning) {
  for (const TuningLevel level : {TuningLevel::kAll,
                                  TuningLevel::kClass,
                                  TuningLevel::kVendor,
                                  TuningLevel::kArchitecture,
                                  TuningLevel::kDevice}) {
    for (const TuningEntry& entry : entries) {
      if (entry.level != level || !is_of(entry, device)) {
        continue;
      }
      for (const auto& [name, value] : entry.numbers) {
        tuning.numbers.*number_of(name, value) = value;
      }
      for (const auto& [problem, solver] : entry.choices) {
        tuning.choices[problem] = solver;
      }
    }
  }
}

struct UserEntries {
  std::mutex mutex;
  std::vector<TuningEntry> entries;
};

UserEntries& user_entries() {
  static auto* instance = new UserEntries();
  return *instance;
}

}  // namespace

std::map<std::string, double> named(const TuningNumbers& numbers) {
  std::map<std::string, double> result;
  for (const auto& [name, number] : kNumbers) {
    result.emplace(name, numbers.*number);
  }
  return result;
}

TuningLevel tuning_level(const std::string& text) {
  constexpr std::array<const char*, 5> kTexts = {
      "all", "class", "vendor", "architecture", "device"};
  for (size_t i = 0; i < kTexts.size(); ++i) {
    if (text == kTexts[i]) {
      return static_cast<TuningLevel>(i);
    }
  }
  throw Error("there is no level " + text +
              "; expected all, class, vendor, architecture or device");
}

void add_tuning(const std::vector<TuningEntry>& entries) {
  for (const TuningEntry& entry : entries) {
    for (const auto& [name, value] : entry.numbers) {
      number_of(name, value);
    }
  }
  UserEntries& user = user_entries();
  const std::lock_guard lock(user.mutex);
  user.entries.insert(user.entries.end(), entries.begin(), entries.end());
}

Tuning tuning_of(const DeviceInfo& device) {
  Tuning tuning;
  apply(shipped_tuning(), device, tuning);
  UserEntries& user = user_entries();
  const std::lock_guard lock(user.mutex);
  apply(user.entries, device, tuning);
  return tuning;
}

}  // namespace torch_opencl::runtime
