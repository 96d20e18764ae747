// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory_file.hpp: a file that lies in memory, for a library that must not meet a failing disk.
// libhdf5 does not survive a failure of H5Fclose (it frees the file, keeps its identifier, and crashes when the process
// ends), so it writes a new file's metadata here, and we copy what it wrote to the disk, with our own checks.
#pragma once
#include <string>

#include <kozero/io/file_descriptor.hpp>

namespace kozero::io {

class MemoryFile {
 public:
  /// Empty, under a name of its own in /dev/shm. Throws Error(write).
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// Opens like any file's, until the name is taken away.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// From now on the file lives as long as it is open: once the library has it, so that no kill leaves it behind.
  void remove_name();
  /// Gives `file` this one's size and all bytes that were written here; its holes stay holes. Throws Error(write).
  void copy_to(const FileDescriptor& file) const;

 private:
  std::string path_ = "/dev/shm/kozero-XXXXXX";
  int number_;
  bool has_name_ = true;
};

}  // namespace kozero::io
