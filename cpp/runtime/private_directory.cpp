#include "private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

namespace torch_opencl::runtime {
namespace {

constexpr mode_t kDirectoryMode = 0700;
constexpr mode_t kFileMode = 0600;
constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;
constexpr mode_t kOfOthers = S_IRWXG | S_IRWXO;

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;

  int get() const { return value_; }
  bool close() {
    const int value = std::exchange(value_, -1);
    return value >= 0 && ::close(value) == 0;
  }

 private:
  int value_;
};

bool is_safe(const struct stat& status) {
  return status.st_uid == geteuid() &&
         (status.st_mode & kWritableByOthers) == 0;
}

int64_t nanoseconds(const struct timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void warn_refused(const std::string& path, const char* why) {
  static std::atomic<bool> has_warned{false};
  if (!has_warned.exchange(true)) {
    std::fprintf(stderr,
                 "torch_opencl: the program cache %s is not used: %s. Give it "
                 "to this user with mode 0700, or name another directory in "
                 "TORCH_OPENCL_CACHE_DIR\n",
                 path.c_str(),
                 why);
  }
}

bool write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Up to the size that `content` has; shorter where the file is.
bool read_all(int descriptor, std::vector<unsigned char>& content) {
  size_t filled = 0;
  while (filled < content.size()) {
    const ssize_t got =
        ::read(descriptor, content.data() + filled, content.size() - filled);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return false;
    }
    if (got == 0) {
      break;
    }
    filled += static_cast<size_t>(got);
  }
  content.resize(filled);
  return true;
}

}  // namespace

PrivateDirectory::PrivateDirectory(const std::string& path) {
  struct stat status {};
  // Whoever made a link chose what it leads to.
  if (lstat(path.c_str(), &status) != 0) {
    return;
  }
  if (S_ISLNK(status.st_mode) && status.st_uid != geteuid()) {
    state_ = State::kRefused;
    warn_refused(path, "it is a link of another user");
    return;
  }
  descriptor_ =
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) {
    return;
  }
  if (!is_safe(status)) {
    state_ = State::kRefused;
    warn_refused(path,
                 status.st_uid != geteuid() ? "it belongs to another user"
                                            : "other users can write to it");
    return;
  }
  if ((status.st_mode & kOfOthers) != 0) {
    fchmod(descriptor_, kDirectoryMode);  // others could only read it
  }
  state_ = State::kUsable;
}

PrivateDirectory::~PrivateDirectory() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

void PrivateDirectory::make(const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos;
       end = path.find('/', end + 1)) {
    mkdir(path.substr(0, end).c_str(), kDirectoryMode);
  }
  mkdir(path.c_str(), kDirectoryMode);
}

PrivateDirectory::Found PrivateDirectory::read(
    const std::string& name,
    int64_t limit_bytes,
    std::vector<unsigned char>& content) const {
  const Descriptor file(openat(descriptor_,
                               name.c_str(),
                               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) {
    return errno == ENOENT ? Found::kNothing : Found::kUnusable;
  }
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      !is_safe(status) || status.st_size > limit_bytes) {
    return Found::kUnusable;
  }
  if ((status.st_mode & kOfOthers) != 0) {
    fchmod(file.get(), kFileMode);  // of an earlier version
  }
  content.resize(static_cast<size_t>(status.st_size));
  if (!read_all(file.get(), content)) {
    return Found::kUnusable;
  }
  futimens(file.get(), nullptr);
  return Found::kFile;
}

bool PrivateDirectory::write(const std::string& name,
                             std::string_view content) const {
  constexpr int kTries = 16;
  std::string temporary;
  int created = -1;
  for (int i = 0; i < kTries && created < 0; ++i) {
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random)) {
      return false;
    }
    char digits[17];
    std::snprintf(digits,
                  sizeof(digits),
                  "%016llx",
                  static_cast<unsigned long long>(random));
    temporary = name + "." + digits + std::string(kTemporary);
    created = openat(descriptor_,
                     temporary.c_str(),
                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                     kFileMode);
    if (created < 0 && errno != EEXIST) {
      return false;
    }
  }
  Descriptor file(created);
  const bool is_written = created >= 0 && write_all(created, content) &&
                          fchmod(created, kFileMode) == 0 && file.close();
  if (created >= 0 &&
      (!is_written ||
       renameat(descriptor_, temporary.c_str(), descriptor_, name.c_str()) !=
           0)) {
    remove(temporary);
    return false;
  }
  return is_written;
}

void PrivateDirectory::remove(const std::string& name) const {
  unlinkat(descriptor_, name.c_str(), 0);
}

std::vector<PrivateDirectory::Entry> PrivateDirectory::entries() const {
  std::vector<Entry> result;
  const auto close_directory = [](DIR* directory) { closedir(directory); };
  const int listed =
      openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, decltype(close_directory)> directory(
      listed < 0 ? nullptr : fdopendir(listed), close_directory);
  if (directory == nullptr) {
    if (listed >= 0) {
      close(listed);
    }
    return result;
  }
  while (const struct dirent* item = readdir(directory.get())) {
    struct stat status {};
    // Another process may have removed it just now.
    if (fstatat(descriptor_, item->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(status.st_mode)) {
      result.push_back(
          {item->d_name, int64_t{status.st_size}, nanoseconds(status.st_mtim)});
    }
  }
  return result;
}

}  // namespace torch_opencl::runtime
