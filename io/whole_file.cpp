// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <kozero/core/error.hpp>
#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/whole_file.hpp>

namespace kozero::io {

std::string partial_name(const std::string& path) { return path + ".partial"; }

void publish(const std::string& path) {
  const std::string partial = partial_name(path);
  FileDescriptor(partial, FileDescriptor::Use::sync).sync();
  if (std::rename(partial.c_str(), path.c_str()) != 0) {
    throw Error(Failure::write, path + ": cannot rename " + partial + ": " + errno_text());
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  FileDescriptor(folder.empty() ? "." : folder, FileDescriptor::Use::sync).sync();
}

void write_whole_file(const std::string& path, std::string_view bytes) {
  std::error_code ignored;
  std::filesystem::remove(partial_name(path), ignored);
  try {
    FileDescriptor file(partial_name(path), FileDescriptor::Use::create);
    file.write(bytes);
    file.close();
    publish(path);
  } catch (const Error&) {
    std::filesystem::remove(partial_name(path), ignored);
    throw;
  }
}

std::string read_whole_file(const std::string& path, std::int64_t limit) {
  const FileDescriptor file(path, FileDescriptor::Use::read);
  const std::int64_t size = file.size();
  if (size > limit) {
    throw Error(Failure::input, path + ": " + std::to_string(size) + " bytes, more than the " + std::to_string(limit) +
                                    " such a file may have");
  }
  std::string bytes(static_cast<std::size_t>(size), '\0');
  file.read_at(bytes, 0);
  return bytes;
}

}  // namespace kozero::io
