// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_folder.hpp: the folder that a run owns, and the lock that keeps other jobs out of it.
// create_run_folder never overwrites a folder that holds anything. Rank 0 holds the RunLock until the run ends.
// Throws Error(deck) where another job holds the lock.
#pragma once
#include <sys/types.h>
#include <string>

#include <kozero/core/error.hpp>

namespace kozero::io {

// One job per folder. Rank 0 holds flock(2) on the folder and on the file `lock` in it, from before anything there is
// read or changed until the run ends. Deleting the file does not let another job in; the file says who holds the lock.
//   RunLock lock("runs/x", RunLock::Steal::no);      Error(deck) naming host, process and since when it is held
// The system releases the locks of a process that ends in any way, so a crash leaves none on its host. A file server
// may keep the locks of a host that was lost: Steal::yes takes the folder, by a new file in place of the old one, and a
// holder that lives after all is told by lost(). If the file system has no locks, note() says so.

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
  /// Throws Error(write) with lost(), unless that is "". In any thread.
  void require() const;

 private:
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const Identity&) const = default;
  };
  enum class Take { taken, held, replaced };

  /// `from_holder`: the folder's own lock may be held.
  [[nodiscard]] Take take(bool from_holder);
  [[nodiscard]] Take take_folder(bool from_holder);
  [[nodiscard]] Take take_file();
  void make_folder();
  void close();
  void write_holder() const;
  void steal();
  [[noreturn]] void refuse() const;
  [[nodiscard]] std::string path() const { return folder_ + "/" + kLockFile; }
  static Identity identity_of(int file);

  std::string folder_;
  bool made_ = false;
  int opened_ = -1;  // the folder
  int file_ = -1;    // `lock` in it
  Identity folder_identity_;
  Identity file_identity_;
  std::string note_;
};

// A run's folder, held open while the run saves: another folder that gets its name is neither written nor pruned.
//   HeldFolder held("runs/x", lock);      on every rank; `lock`: rank 0's, nullptr on other ranks
//   held.path() + "/step_000000012"       a path through the descriptor, as "/proc/self/fd/7/step_000000012"

class HeldFolder {
 public:
  /// If this process does not see the folder, path() is the folder's name.
  HeldFolder(std::string folder, const RunLock* lock);
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// RunLock::require() on the rank that has the lock, before something in the folder gets its name or is removed.
  void require() const;
  /// An error of a call that was given path(), in the user's words: with the folder's name. If the folder is lost, that
  /// is the reason for a failed write.
  [[nodiscard]] Error in_words(const Error& problem) const;

 private:
  std::string folder_;
  const RunLock* lock_;
  int opened_;
  std::string path_;
};

// The folder that a run owns. Nothing is ever overwritten: where the wanted one holds anything, -2, -3
// ... is appended to its name. An empty log.txt marks a folder as taken.

inline constexpr const char* kLogFile = "log.txt";
inline constexpr const char* kDeckFile = "deck.toml";  ///< the resolved deck

/// Throws Error(write) if the path of a folder, or a parent of it, is a symbolic link to nothing.
void require_no_dangling_link(const std::string& folder);

/// Throws Error(write) if something that is no regular file (a FIFO, a link, a folder) has the name of a file that a
/// run writes into its folder.
void require_regular_files(const std::string& folder);

/// A folder in Hugging Face's form, with config.json; what `kozero import` makes has a deck too and is a run's.
bool is_hugging_face_folder(const std::string& folder);

/// Makes the folder (and its parents), or takes an empty one, and returns its name. Two processes that ask at once get
/// two folders. `locked`: a folder whose lock this process holds; the lock alone does not fill it. One rank calls it
/// and tells the others. Throws Error(write).
std::string create_run_folder(const std::string& wanted, const std::string& locked = "");

/// Renames a file or folder to PATH.old, or the first of PATH.old-2, PATH.old-3 ... that is not there. Returns the new
/// path. Throws Error(write).
std::string set_aside(const std::string& path);

/// `folder` without slashes at its end, so that "-2" or "-tokens" can follow its name.
std::string without_trailing_slash(const std::string& folder);

}  // namespace kozero::io
