// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/stat.h>

#include <kozero/core/error.hpp>
#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/mapped_file.hpp>

namespace kozero::io {

MappedFile::MappedFile(const std::string& path) {
  const FileDescriptor file(path, FileDescriptor::Use::read);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) throw Error(Failure::input, path + ": cannot stat: " + errno_text());
  if (!S_ISREG(status.st_mode)) throw Error(Failure::input, path + ": not a regular file");
  if (status.st_size == 0) return;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED) throw Error(Failure::input, path + ": cannot map: " + errno_text());
  bytes_ = std::span(static_cast<const std::byte*>(memory), size);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace kozero::io
