// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_folder.hpp: the folder that a run owns, and the lock that keeps other jobs out of it.
//   RunLock lock("runs/x", RunLock::Steal::no);      Error(deck) naming host and process of the holder, and since when
//   HeldFolder held("runs/x", lock);                 on every rank; `lock`: rank 0's, nullptr on other ranks
//   held.path() + "/step_000000012"                  a path through the descriptor, "/proc/self/fd/7/step_000000012"
// One job per folder. Rank 0 locks (flock(2)) the folder and the file `lock` in it, from before it reads or changes
// anything there until the run ends. Deleting the file does not let another job in; the file names the holder. The
// system releases the locks of a process that ends in any way, so a crash leaves none on its host. A file server may
// keep the locks of a lost host: Steal::yes replaces the lock's file by a new one, and lost() tells a holder that is
// alive after all. If the file system has no locks, note() says so.
// Nothing is ever overwritten: if the wanted folder is not empty, -2, -3 ... is appended to its name. An empty log.txt
// marks a folder as used.
#pragma once
#include <sys/types.h>
#include <cstdint>
#include <string>

#include <kozero/core/error.hpp>

namespace kozero::io {

inline constexpr const char* kLockFile = "lock";

class RunLock {
 public:
  enum class Steal { no, yes };

  /// Makes the folder, and its parents, if it does not exist. Throws Error(deck) if another process holds the lock,
  /// Error(write) if the folder cannot be made or written to.
  RunLock(const std::string& folder, Steal steal);
  /// Removes the file, and the folder if this lock made it and it has no other file.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// A line for the user: the file system has no locks, or the lock was taken from a holder; else "".
  [[nodiscard]] const std::string& note() const { return note_; }
  /// Why the folder is no longer this run's: it was moved, or another process took the lock. "" if it is this run's, or
  /// if the file system does not answer. Two calls of stat(2).
  [[nodiscard]] std::string lost() const;
  /// Throws Error(write) with lost(), unless lost() is "". Any thread may call.
  void require() const;

 private:
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const Identity&) const = default;
  };
  enum class Take { taken, held, replaced };

  /// `from_holder`: another process may hold the folder's own lock.
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

/// A run's folder, kept open while the run saves, so that a new folder of the same name is neither written nor pruned.
class HeldFolder {
 public:
  /// If this process does not see the folder, path() is the folder's name.
  HeldFolder(std::string folder, const RunLock* lock);
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// RunLock::require() on the rank with the lock; called before each rename or removal in the folder.
  void require() const;
  /// An error of a call with path(), with the folder's name instead. If the folder is lost, that is the reason of a
  /// failed write.
  [[nodiscard]] Error in_words(const Error& problem) const;

 private:
  std::string folder_;
  const RunLock* lock_;
  int opened_;
  std::string path_;
};

inline constexpr const char* kLogFile = "log.txt";
inline constexpr const char* kDeckFile = "deck.toml";  ///< the resolved deck
inline constexpr std::int64_t kMaxDeckBytes = std::int64_t{16} << 20;
inline constexpr const char* kTuningFile = "tuning.toml";  ///< a copy of run.tuning's file
inline constexpr const char* kWeightsFile = "weights.h5";
inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kTokenizerModelFile = "tokenizer.model";  ///< a SentencePiece model, in place of the above

/// Throws Error(write) if the path of a folder, or a parent of it, is a symbolic link to nothing.
void require_no_dangling_link(const std::string& folder);

/// Throws Error(write) if a name that a run writes in its folder is a FIFO, a link or a folder, not a regular file.
void require_regular_files(const std::string& folder);

/// Whether the folder has config.json and no deck; an import by `kozero import` has a deck too and is a run's folder.
bool is_hugging_face_folder(const std::string& folder);

/// Makes the folder (and its parents), or uses an empty one, and returns its name. Two concurrent callers get two
/// folders. `locked`: a folder whose lock this process holds; the lock's file does not count as content. One rank calls
/// it and sends the name to the others. Throws Error(write).
std::string create_run_folder(const std::string& wanted, const std::string& locked = "");

/// Renames a file or folder to PATH.old, or the first of PATH.old-2, PATH.old-3 ... that is free. Returns the new
/// path. Throws Error(write).
std::string set_aside(const std::string& path);

/// `folder` without slashes at its end, so that "-2" or "-tokens" can follow its name.
std::string without_trailing_slash(const std::string& folder);

}  // namespace kozero::io
