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
  /// Empty. Throws Error(write).
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// Opens like any file's in this process, as long as this object lives.
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(number_); }
  /// Gives `file` this one's size and all bytes that were written here; its holes stay holes. Throws Error(write).
  void copy_to(const FileDescriptor& file) const;

 private:
  int number_;
};

}  // namespace kozero::io
