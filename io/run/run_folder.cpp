// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_folder.cpp: flock(2) on the folder's lock file, and the choice of a free folder name.
// A holder may remove or replace the locked folder or file. So after taking the locks, RunLock checks whether the names
// still denote the locked folder and file, and begins again if not.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include "io/posix/file.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"
#include "io/run/run_status.hpp"

namespace kozero::io {

namespace fs = std::filesystem;

namespace {

constexpr int kAttempts = 20;
constexpr auto kHolderPatience = std::chrono::seconds(2);  // for a holder that is alive after all to notice and end
constexpr auto kPause = std::chrono::milliseconds(10);
constexpr std::string_view kOwnDescriptors = "/proc/self/fd/";

/// "process 123 on host h, since 2026-01-01T00:00:00Z"; "" if the file names no process.
std::string named_holder(const std::string& path) {
  std::string text(1024, '\0');
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const ssize_t size = file < 0 ? -1 : ::read(file, text.data(), text.size());
  if (file >= 0) ::close(file);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  try {
    return "process " + std::to_string(json.at("pid").get<long>()) + " on host " + json.at("host").get<std::string>() +
           ", since " + json.at("since").get<std::string>();
  } catch (const nlohmann::json::exception&) {  // not complete yet, or written by another program
    return "";
  }
}

/// The same for a held lock. Retries, since a holder writes its name shortly after it gets the lock.
std::string holder_in(const std::string& path) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (!fs::exists(fs::symlink_status(path)) && attempt > 1) return "a process whose file \"lock\" was deleted";
    if (const std::string holder = named_holder(path); !holder.empty()) return holder;
    std::this_thread::sleep_for(kPause);
  }
  return "a process that has not written its name there";
}

bool means_no_locks(int error) {
  return error == ENOLCK || error == ENOSYS || error == ENOTSUP || error == EOPNOTSUPP || error == EINVAL;
}

/// Creates the empty log; false if it exists already. Only one of several processes gets true.
bool mark(const fs::path& folder) {
  const std::string path = (folder / kLogFile).string();
  std::FILE* file = std::fopen(path.c_str(), "wx");
  if (file == nullptr && errno != EEXIST) throw Error(Failure::write, path + ": cannot create: " + errno_text());
  if (file != nullptr) std::fclose(file);
  return file != nullptr;
}

/// `locked`: the lock's file may exist.
bool is_free(const fs::path& folder, bool locked) {
  if (!fs::is_directory(folder)) return false;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!locked || entry.path().filename() != kLockFile) return false;
  }
  return true;
}

bool take(const fs::path& folder, bool locked) {
  if (fs::exists(folder) && !is_free(folder, locked)) return false;
  fs::create_directories(folder);
  return mark(folder);
}

}  // namespace

RunLock::RunLock(const std::string& folder, Steal steal_it) : folder_(folder) {
  bool stolen = false;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    make_folder();
    const Take took = take(stolen);
    if (took == Take::taken) {
      write_holder();
      if (stolen) std::this_thread::sleep_for(kHolderPatience);
      return;
    }
    close();
    if (took == Take::held && (steal_it == Steal::no || stolen)) refuse();
    if (took == Take::held) {
      steal();
      stolen = true;
    }
    std::this_thread::sleep_for(kPause);
  }
  refuse();
}

RunLock::~RunLock() {
  if (lost().empty()) {
    ::unlinkat(opened_, kLockFile, 0);
    if (made_) ::rmdir(folder_.c_str());
  }
  close();
}

void RunLock::close() {
  for (int* number : {&file_, &opened_}) {
    if (*number >= 0) ::close(std::exchange(*number, -1));
  }
}

void RunLock::make_folder() {
  require_no_dangling_link(folder_);
  std::error_code problem;
  made_ = fs::create_directories(folder_, problem) || made_;
  if (problem) throw Error(Failure::write, "run.dir: " + folder_ + ": cannot create: " + problem.message());
}

RunLock::Take RunLock::take(bool from_holder) {
  const Take took = take_folder(from_holder);
  return took == Take::taken ? take_file() : took;
}

RunLock::Take RunLock::take_folder(bool from_holder) {
  opened_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened_ < 0 && errno == ENOENT) return Take::replaced;  // whoever had made the folder removed it
  if (opened_ < 0) throw Error(Failure::write, folder_ + ": cannot open: " + errno_text());
  // A file system may lock no folders (NFS: EBADF); then the file's lock has to do, and take_file() notes what it
  // lacks.
  const bool held = ::flock(opened_, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR);
  folder_identity_ = identity_of(opened_);
  return held && !from_holder ? Take::held : Take::taken;
}

RunLock::Take RunLock::take_file() {
  file_ = ::openat(opened_, kLockFile, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (file_ < 0 && errno == ENOENT) return Take::replaced;
  if (file_ < 0) throw Error(Failure::write, path() + ": cannot open: " + errno_text());
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK || errno == EINTR) return Take::held;
    if (!means_no_locks(errno)) throw Error(Failure::write, path() + ": cannot lock: " + errno_text());
    note_ = folder_ + ": its file system has no locks (" + errno_text() +
            "): nothing keeps a second job out of this folder";
  }
  file_identity_ = identity_of(file_);
  struct stat of_file {};
  struct stat of_folder {};
  const bool same = ::fstatat(opened_, kLockFile, &of_file, AT_SYMLINK_NOFOLLOW) == 0 &&
                    Identity{of_file.st_dev, of_file.st_ino} == file_identity_ &&
                    ::stat(folder_.c_str(), &of_folder) == 0 &&
                    Identity{of_folder.st_dev, of_folder.st_ino} == folder_identity_;
  return same ? Take::taken : Take::replaced;
}

RunLock::Identity RunLock::identity_of(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

void RunLock::write_holder() const {
  nlohmann::ordered_json holder = {{"host", host_name()}, {"pid", ::getpid()}, {"since", time_now()}};
  const std::string text = holder.dump() + "\n";
  // A full disk does not matter: the text is only for messages.
  if (::ftruncate(file_, 0) == 0) static_cast<void>(!::pwrite(file_, text.data(), text.size(), 0));
}

void RunLock::steal() {
  note_ = folder_ + ": its lock was taken from " + holder_in(path()) + " (--steal-lock)";
  if (::unlink(path().c_str()) != 0 && errno != ENOENT) {
    throw Error(Failure::write, path() + ": cannot remove: " + errno_text());
  }
}

void RunLock::refuse() const {
  throw Error(Failure::deck, "run.dir = \"" + folder_ + "\": another run is at work there: " + holder_in(path()) +
                                 "; wait for it, stop it or give another run.dir; if that host was lost, "
                                 "--steal-lock takes the folder");
}

std::string RunLock::lost() const {
  struct stat now {};
  if (::stat(folder_.c_str(), &now) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return "";
    return folder_ + ": this run's folder is not there any more: it was deleted or moved";
  }
  if (Identity{now.st_dev, now.st_ino} != folder_identity_) {
    return folder_ + ": this is not the folder that the run began in: it was deleted or moved, and another came";
  }
  if (::stat(path().c_str(), &now) != 0 || Identity{now.st_dev, now.st_ino} == file_identity_) return "";
  // A process that takes the lock writes its name into the new file. Any other file does not matter, since the folder
  // is locked.
  const std::string holder = named_holder(path());
  return holder.empty() ? "" : folder_ + ": its lock was taken by " + holder;
}

void RunLock::require() const {
  if (const std::string why = lost(); !why.empty()) throw Error(Failure::write, why);
}

HeldFolder::HeldFolder(std::string folder, const RunLock* lock)
    : folder_(std::move(folder)),
      lock_(lock),
      opened_(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      path_(opened_ < 0 ? folder_ : std::string(kOwnDescriptors) + std::to_string(opened_)) {}

HeldFolder::~HeldFolder() {
  if (opened_ >= 0) ::close(opened_);
}

void HeldFolder::require() const {
  if (lock_ != nullptr) lock_->require();
}

Error HeldFolder::in_words(const Error& problem) const {
  const auto seen = problem.seen_by_all_ranks() ? Error::Seen::by_all_ranks : Error::Seen::by_this_rank;
  const std::string lost = lock_ != nullptr && problem.failure() == Failure::write ? lock_->lost() : "";
  if (!lost.empty()) return {Failure::write, lost, seen};
  std::string text = problem.what();  // the error may come from a rank with another descriptor
  for (auto at = text.find(kOwnDescriptors); at != std::string::npos; at = text.find(kOwnDescriptors, at)) {
    const auto end = text.find_first_not_of("0123456789", at + kOwnDescriptors.size());
    text.replace(at, (end == std::string::npos ? text.size() : end) - at, folder_);
    at += folder_.size();
  }
  return {problem.failure(), text, seen};
}

void require_no_dangling_link(const std::string& folder) {
  fs::path prefix;
  for (const auto& part : fs::path(folder)) {
    prefix /= part;
    std::error_code ignored;
    if (!fs::is_symlink(prefix, ignored) || fs::status(prefix, ignored).type() != fs::file_type::not_found) continue;
    throw Error(Failure::write, "run.dir = \"" + folder + "\": " + prefix.string() + " is a symbolic link to " +
                                    fs::read_symlink(prefix, ignored).string() +
                                    ", which does not exist; make that folder, or remove the link");
  }
}

void require_regular_files(const std::string& folder) {
  for (const char* name : {kLogFile, kDeckFile, kLockFile, kStatusFile, kRanksFile, kMetricsFile, kWeightsFile,
                           kTokenizerFile, kTokenizerModelFile, kTuningFile}) {
    const std::string path = folder + "/" + name;
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) continue;
    throw Error(Failure::write, path + ": not a regular file, and a run writes here; move it away");
  }
}

std::string without_trailing_slash(const std::string& folder) { return (fs::path(folder) / "").parent_path().string(); }

bool is_hugging_face_folder(const std::string& folder) {
  return is_there(folder + "/config.json") && !is_there(folder + "/" + kDeckFile);
}

std::string set_aside(const std::string& path) {
  std::string aside = path + ".old";
  for (int number = 2; is_there(aside); ++number) aside = path + ".old-" + std::to_string(number);
  std::error_code problem;
  fs::rename(path, aside, problem);
  if (problem) throw Error(Failure::write, path + ": cannot rename to " + aside + ": " + problem.message());
  return aside;
}

std::string create_run_folder(const std::string& wanted, const std::string& locked) {
  const fs::path first = without_trailing_slash(wanted);
  if (first.empty()) throw Error(Failure::deck, "run.dir = \"" + wanted + "\": accepted is the path of a folder");
  try {
    for (int number = 1;; ++number) {
      const fs::path folder = number == 1 ? first : fs::path(first.string() + "-" + std::to_string(number));
      if (take(folder, folder == fs::path(locked))) return folder.string();
    }
  } catch (const fs::filesystem_error& problem) {
    throw Error(Failure::write, "run.dir: " + problem.path1().string() + ": " + problem.code().message());
  }
}

}  // namespace kozero::io
