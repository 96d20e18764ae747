// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// memory_file.hpp: a file in memory that has no name, for a library that must not meet a failing disk.
// libhdf5 does not survive a failure of H5Fclose (it frees the file, keeps its identifier, and crashes when the process
// ends), so it writes a new file's metadata here, and we copy what it wrote to the disk, with our own checks.
// The file is memfd_create(2)'s: it takes no room in /dev/shm and ends with the process, however that ends.
#pragma once
#include <string>

#include <kozero/io/file_descriptor.hpp>

namespace kozero::io {

class MemoryFile {
 public:
  /// Empty. Throws Error(write), which speaks of memory.
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// Opens as any file's does, in this process, while this object lives.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Gives `file` this one's size and all bytes that were written here; its holes stay holes. Throws Error(write).
  void copy_to(const FileDescriptor& file) const;

 private:
  int number_;
  std::string path_;  ///< /proc/self/fd/NUMBER
};

}  // namespace kozero::io
