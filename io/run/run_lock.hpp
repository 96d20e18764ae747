// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_lock.hpp: one job a run's folder. Rank 0 holds flock(2) on the file `lock` in it, from before anything there is
// read or changed until the run ends.
//   RunLock lock("runs/x", RunLock::Steal::no);      Error(deck) naming host, process and since when it is held
// The system releases the lock of a process that ends in any way, so a crash leaves none on its host; the file then
// says who held it. A file server may keep the lock of a host that was lost: Steal::yes takes it, by a new file in
// place of the old one, and a holder that lives after all is told by lost(). Where the file system has no locks, note()
// says so.
#pragma once
#include <sys/types.h>

#include <string>

namespace kozero::io {

inline constexpr const char* kLockFile = "lock";

class RunLock {
 public:
  enum class Steal { no, yes };

  /// Makes the folder, and its parents, where it is not there. Throws Error(deck) where another process holds the lock,
  /// Error(write) where the folder cannot be made or written to.
  RunLock(const std::string& folder, Steal steal);
  /// Removes the file, and the folder where this lock made it and nothing else came into it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// A line for the user: the file system has no locks, or whose lock was taken. Mostly "".
  [[nodiscard]] const std::string& note() const { return note_; }
  /// Why the folder is not this run's any more: it is not where it was, or another process took the lock. "" while it
  /// is there, and where the file system does not tell (a server that does not answer). Two calls of stat(2).
  [[nodiscard]] std::string lost() const;

 private:
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const Identity&) const = default;
  };
  enum class Take { taken, held, replaced };

  [[nodiscard]] Take take();
  void make_folder();
  void write_holder() const;
  void steal();
  [[noreturn]] void refuse() const;
  [[nodiscard]] std::string path() const { return folder_ + "/" + kLockFile; }
  static Identity identity_of(int file);

  std::string folder_;
  bool made_ = false;
  int file_ = -1;
  Identity folder_identity_;
  Identity file_identity_;
  std::string note_;
};

}  // namespace kozero::io
