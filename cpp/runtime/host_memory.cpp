#include "host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <initializer_list>
#include <iterator>

namespace torch_opencl::runtime {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file),
          std::istreambuf_iterator<char>()};
}

std::optional<uint64_t> number_at(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

template <class Use>
void for_each_line(std::string_view text, const Use& use) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    use(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// The number behind the word that a line begins with.
std::optional<uint64_t> number_of(std::string_view text,
                                  std::string_view word) {
  std::optional<uint64_t> found;
  for_each_line(text, [&](std::string_view line) {
    if (!found.has_value() && line.starts_with(word)) {
      found = number_at(line.substr(word.size()));
    }
  });
  return found;
}

void lower(std::optional<uint64_t>& least, std::optional<uint64_t> value) {
  if (value.has_value()) {
    least = std::min(least.value_or(*value), *value);
  }
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
};

// The group at `path` below `mount` and all above it. In a container the path
// may be that of the host; the group's files then lie at the mount.
void lower_by_cgroups(std::optional<uint64_t>& least,
                      const std::string& mount,
                      std::string path,
                      const CgroupFiles& files) {
  for (;;) {
    const std::string group = mount + path + "/";
    lower(least,
          available_in_cgroup(content_of(group + files.limit),
                              content_of(group + files.usage),
                              content_of(group + "memory.stat")));
    if (path.empty()) {
      return;
    }
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

std::optional<uint64_t> available_in_meminfo(std::string_view text) {
  const auto kibibytes = number_of(text, "MemAvailable:");
  return kibibytes.has_value() ? std::optional(*kibibytes * 1024)
                               : std::nullopt;
}

std::optional<uint64_t> available_in_cgroup(std::string_view limit,
                                            std::string_view usage,
                                            std::string_view stat) {
  const auto most = number_at(limit);
  const auto used = number_at(usage);
  if (!most.has_value() || !used.has_value()) {
    return std::nullopt;
  }
  // v1 counts the groups below in total_ rows.
  const auto all_cache = number_of(stat, "total_inactive_file ");
  const uint64_t cache = all_cache.has_value()
                             ? *all_cache
                             : number_of(stat, "inactive_file ").value_or(0);
  const uint64_t kept = *used - std::min(cache, *used);
  return *most - std::min(kept, *most);
}

std::optional<uint64_t> available_host_memory(const std::string& root) {
  auto least = available_in_meminfo(content_of(root + "/proc/meminfo"));
  constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes",
                                     "memory.usage_in_bytes"};
  constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current"};
  const std::string mount = root + "/sys/fs/cgroup";
  // hierarchy:controllers:path, where version 2 is 0 and names none
  const std::string groups = content_of(root + "/proc/self/cgroup");
  for_each_line(groups, [&](std::string_view line) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) {
      return;
    }
    const std::string controllers =
        "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    std::string path(line.substr(second + 1));
    if (path == "/") {
      path.clear();
    }
    if (controllers == ",,") {
      lower_by_cgroups(least, mount, path, kVersion2);
      lower_by_cgroups(least, mount + "/unified", path, kVersion2);
    } else if (controllers.find(",memory,") != std::string::npos) {
      lower_by_cgroups(least, mount + "/memory", path, kVersion1);
    }
  });
  return least;
}

}  // namespace torch_opencl::runtime
