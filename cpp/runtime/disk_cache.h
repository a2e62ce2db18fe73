// Program binaries on disk: one file an entry, written by atomic rename, so
// any number of processes may share the directory. Nothing here throws: a
// directory that is read-only, full or missing only means building again, and
// a damaged entry is dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace torch_opencl::runtime {

class DiskCache {
 public:
  DiskCache(std::string directory, int64_t limit_bytes);

  // The payload stored under `key`, or nothing. The whole key is stored in
  // the entry and compared, so a hash collision is a miss. `damaged` tells
  // that an entry was there and failed its checksum.
  std::optional<std::vector<unsigned char>> load(const std::string& key,
                                                 bool* damaged) noexcept;
  void store(const std::string& key,
             const std::vector<unsigned char>& payload) noexcept;
  void remove(const std::string& key) noexcept;

  const std::string& directory() const { return directory_; }

 private:
  std::string path_of(const std::string& key) const;
  void evict() noexcept;  // oldest access first, until under the limit

  std::string directory_;
  int64_t limit_bytes_;
};

// TORCH_OPENCL_CACHE_DIR, else $XDG_CACHE_HOME/torch_opencl, else
// ~/.cache/torch_opencl.
std::string default_cache_directory();

}  // namespace torch_opencl::runtime
