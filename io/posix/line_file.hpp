// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// line_file.hpp: a file that grows by whole lines: each is one write(2); one that does not fit is taken back.
// The first line that cannot be written throws Error(write) with errno's text; the file ends in a whole line then, and
// a later line is tried again.
#pragma once
#include <string>
#include <string_view>

namespace kozero::io {

class LineFile {
 public:
  enum class Open { create, append };

  LineFile() = default;
  /// create: the file must not exist. append: made where it does not. Throws Error(write).
  LineFile(const std::string& path, Open how);
  ~LineFile();
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&& other) noexcept;
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  [[nodiscard]] bool is_open() const { return number_ >= 0; }
  /// `line` without its line break. Throws Error(write).
  void append(std::string_view line);

 private:
  /// Cuts off a part of a line that could not be taken back before. False where it still cannot.
  bool take_back();

  std::string path_;
  int number_ = -1;
  std::string buffer_;  // the line with its break
  std::size_t excess_ = 0;  // bytes of a broken line at the end
};

}  // namespace kozero::io
