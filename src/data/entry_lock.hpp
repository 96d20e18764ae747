// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// entry_lock.hpp: one process at a time makes the tokens of a folder.
#pragma once
#include <functional>
#include <string>

namespace kozero::data {

/// flock(2) on a file beside the folder, held by the process that makes it. The system releases the lock of a process
/// that ends.
class EntryLock {
 public:
  /// Waits for the lock, and says so by `say` in one line. On a file system without locks it is not held, and two
  /// processes may make the same folder. Throws Error(write).
  EntryLock(std::string path, const std::string& folder, const std::function<void(const std::string& line)>& say);
  ~EntryLock();
  EntryLock(const EntryLock&) = delete;
  EntryLock& operator=(const EntryLock&) = delete;

  [[nodiscard]] bool is_held() const { return is_held_; }

 private:
  /// False if another process has the lock, or the file was removed by the process that had it.
  bool take();
  [[nodiscard]] std::string holder() const;

  std::string path_;
  int file_ = -1;
  bool is_held_ = false;
};

}  // namespace kozero::data
