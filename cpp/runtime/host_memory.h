// What the host can still give: drivers for CPUs allocate from its memory, and
// a process that takes more than there is gets killed, not an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace torch_opencl::runtime {

// MemAvailable of /proc/meminfo in bytes.
std::optional<uint64_t> available_in_meminfo(std::string_view text);

// What a control group's limit leaves, its page cache counted as free: from the
// text of its files of limit ("max" for none), usage and memory.stat.
std::optional<uint64_t> available_in_cgroup(std::string_view limit,
                                            std::string_view usage,
                                            std::string_view stat);

// The least of what the machine and the control groups (v1 and v2) of this
// process and above leave; nothing where neither tells. `root` is put in front
// of /proc and /sys.
std::optional<uint64_t> available_host_memory(const std::string& root = "");

}  // namespace torch_opencl::runtime
