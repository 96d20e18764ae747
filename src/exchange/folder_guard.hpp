// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// folder_guard.hpp: a folder that is complete or absent: filled as OUT.partial, then renamed to OUT.
// An OUT that holds anything is refused, but for an older export that is to be replaced; what is not committed is
// removed.
#pragma once
#include <string>

namespace kozero::exchange {

class FolderGuard {
 public:
  /// With `force`, an OUT that holds an exported model (config.json, no deck.toml) is replaced by commit(). Throws
  /// Error(deck) where OUT is taken, Error(write) where the partial folder cannot be made.
  explicit FolderGuard(const std::string& out, bool force = false);
  ~FolderGuard();
  FolderGuard(const FolderGuard&) = delete;
  FolderGuard& operator=(const FolderGuard&) = delete;

  /// The path of a file of the folder, while it is filled.
  [[nodiscard]] std::string operator/(const std::string& name) const { return partial_ + "/" + name; }
  /// Throws Error(write).
  void commit();

 private:
  std::string out_;
  std::string partial_;
  bool committed_ = false;
};

}  // namespace kozero::exchange
