#include "base/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

namespace vernier {
namespace {

// Mappings that the SIGBUS handler may repair. Fixed storage with atomics only: a signal handler may not lock.
struct GuardedRange {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<bool> failed{false};
};
constexpr std::size_t kMaxGuards = 4096;  // shard limit of a checkpoint
std::array<GuardedRange, kMaxGuards> guards;
std::mutex guards_mutex;
struct sigaction previous_action;
std::uintptr_t page_size = 4096;

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (GuardedRange& range : guards) {
    if (address < range.begin.load() || address >= range.end.load()) continue;
    void* page = reinterpret_cast<void*>(address & ~(page_size - 1));
    if (mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) break;
    range.failed.store(true);
    return;
  }
  // Not ours: hand over to whoever was there before.
  if ((previous_action.sa_flags & SA_SIGINFO) != 0 && previous_action.sa_sigaction != nullptr) {
    previous_action.sa_sigaction(signal, info, context);
    return;
  }
  ::signal(SIGBUS, SIG_DFL);
}

int register_guard(const std::byte* data, std::uint64_t size) {
  const std::lock_guard lock(guards_mutex);
  static const bool kInstalled = [] {
    page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &previous_action) == 0;
  }();
  if (!kInstalled) return -1;
  for (std::size_t i = 0; i < kMaxGuards; ++i) {
    if (guards[i].end.load() != 0) continue;
    guards[i].failed.store(false);
    guards[i].begin.store(reinterpret_cast<std::uintptr_t>(data));
    guards[i].end.store(reinterpret_cast<std::uintptr_t>(data) + size);
    return static_cast<int>(i);
  }
  return -1;
}

std::int64_t modified_ns(const struct stat& info) {
  return static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path,
                                                           const MapOptions& options) {
  const std::string base_name = path.filename().empty() ? path.string() : path.filename().string();
  const std::string name = escape(options.name.empty() ? base_name : options.name);
  const int no_follow = options.follow_symlinks ? 0 : O_NOFOLLOW;
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | no_follow));
  if (fd.get() < 0) {
    if (errno == ELOOP) return fail(ErrorCode::kCorrupt, "{}: is a symbolic link where none is allowed", name);
    if (errno == ENOENT || errno == ENOTDIR) return fail(ErrorCode::kNotFound, "{}: no such file", name);
    if (errno == EMFILE || errno == ENFILE) return fail(ErrorCode::kOutOfMemory, "{}: too many open files", name);
    return fail(ErrorCode::kIo, "{}: cannot open: {}", name, std::strerror(errno));
  }
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return fail(ErrorCode::kIo, "{}: cannot stat: {}", name, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::kCorrupt, "{}: not a regular file", name);

  std::shared_ptr<MappedFile> file(new MappedFile());
  file->name_ = name;
  file->path_ = path;
  file->size_ = static_cast<std::uint64_t>(info.st_size);
  file->inode_ = info.st_ino;
  file->modified_ns_ = modified_ns(info);
  if (file->size_ == 0) return file;
  // Shared: page-locking a private mapping gives the process a copy of every page. Some file systems have only those.
  void* data = mmap(nullptr, file->size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) data = mmap(nullptr, file->size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::kOutOfMemory, "{}: cannot map {} bytes: {}", name, file->size_, std::strerror(errno));
  }
  file->data_ = static_cast<const std::byte*>(data);
  file->owned_ = true;
  file->guard_ = register_guard(file->data_, file->size_);
  return file;
}

std::shared_ptr<const MappedFile> MappedFile::wrap(std::span<const std::byte> bytes, std::string name) {
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->name_ = std::move(name);
  file->data_ = bytes.data();
  file->size_ = bytes.size();
  return file;
}

Result<MappedFile::InMemory> MappedFile::in_memory(std::uint64_t size, std::string name) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::kOutOfMemory, "{}: cannot reserve {} bytes: {}", name, size, std::strerror(errno));
  }
  // Fewer misses of the TLB when weights are streamed. Refused where the system doesn't have them, which is no error.
  static_cast<void>(madvise(data, size, MADV_HUGEPAGE));
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->name_ = std::move(name);
  file->data_ = static_cast<const std::byte*>(data);
  file->size_ = size;
  file->owned_ = true;
  return InMemory{std::move(file), std::span(static_cast<std::byte*>(data), size)};
}

Result<MappedFile::InMemory> MappedFile::in_file(const std::filesystem::path& path, std::uint64_t size) {
  const std::string name = escape(path.filename().string());
  const FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
  if (fd.get() < 0) return fail(ErrorCode::kIo, "{}: cannot open: {}", name, std::strerror(errno));
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return fail(ErrorCode::kIo, "{}: cannot stat: {}", name, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::kCorrupt, "{}: not a regular file", name);
  const bool is_old = info.st_size > 0;
  if (is_old && static_cast<std::uint64_t>(info.st_size) != size) {
    return fail(ErrorCode::kInvalidArgument, "{}: has {} bytes, not {}", name, info.st_size, size);
  }
  // Room now: writing to a page without any would be a signal.
  if (const int error = is_old ? 0 : posix_fallocate(fd.get(), 0, static_cast<off_t>(size)); error != 0) {
    return fail(ErrorCode::kIo, "{}: cannot reserve {} bytes: {}", name, size, std::strerror(error));
  }
  void* data = mmap(nullptr, size, is_old ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::kOutOfMemory, "{}: cannot map {} bytes: {}", name, size, std::strerror(errno));
  }
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->name_ = name;
  file->data_ = static_cast<const std::byte*>(data);
  file->size_ = size;
  file->owned_ = true;
  return InMemory{std::move(file), std::span(static_cast<std::byte*>(data), size), is_old};
}

MappedFile::~MappedFile() {
  if (!owned_) return;
  if (guard_ >= 0) {
    guards[static_cast<std::size_t>(guard_)].begin.store(0);
    guards[static_cast<std::size_t>(guard_)].end.store(0);
  }
  munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::span<const std::byte>> MappedFile::bytes(Extent extent) const {
  if (extent.offset > size_ || extent.size > size_ - extent.offset) {
    return fail(ErrorCode::kCorrupt, "{}: bytes {}+{} lie outside the file of {} bytes", name_, extent.offset,
                extent.size, size_);
  }
  return std::span(data_ + extent.offset, extent.size);
}

Status MappedFile::check_unchanged() const {
  if (path_.empty()) return {};  // memory
  struct stat info = {};
  if (stat(path_.c_str(), &info) != 0 || static_cast<std::uint64_t>(info.st_size) != size_ || info.st_ino != inode_ ||
      modified_ns(info) != modified_ns_) {
    return fail(ErrorCode::kIo, "{}: file changed while loading", name_);
  }
  return {};
}

bool MappedFile::failed() const { return guard_ >= 0 && guards[static_cast<std::size_t>(guard_)].failed.load(); }

}  // namespace vernier
