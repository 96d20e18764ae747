// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// not_text.cpp: the table of formats that are not text, and the test for UTF-8.
#include "src/data/not_text.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <array>

#include "io/posix/readable.hpp"

namespace kozero::data {
namespace {

/// A format that is not text: bytes at an offset that show it, and how to make text of such a file.
struct Format {
  std::size_t offset;
  std::string_view bytes;
  const char* name;
  const char* remedy;
};

using namespace std::string_view_literals;

constexpr std::array<Format, 14> kFormats = {{
    {0, "ARROW1\0\0"sv, "Arrow", "write it as Parquet"},
    {0, "\xFD\x37zXZ\0"sv, "xz", "unpack it: unxz -k FILE"},
    {4, "1AY&SY"sv, "bzip2", "unpack it: bunzip2 -k FILE"},
    {0, "PK\3\4"sv, "ZIP, as .docx, .epub and .pt files are", "unpack it: unzip FILE"},
    {257, "ustar"sv, "tar", "unpack it: tar -xf FILE"},
    {0, "%PDF-"sv, "PDF", "extract its text: pdftotext FILE"},
    {0, "\x89HDF\r\n\x1A\n"sv, "HDF5", "write its texts to a text file"},
    {0, "\x93NUMPY"sv, "NumPy array", "write its texts to a text file"},
    {8, "{\""sv, "safetensors weights", "weights are given as model.init"},
    {0, "\x88\xD8\x34\x01"sv, "token shard", "give it as data.tokens, with data.tokenizer"},
    {0, "\xA1\xD9\x34\x01"sv, "token shard", "give it as data.tokens, with data.tokenizer"},
    {0, "\xFF\xFE"sv, "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE >NEW"},
    {0, "\xFE\xFF"sv, "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE >NEW"},
    {0, "SQLite format 3\0"sv, "SQLite", "write its texts to a text file"},
}};

/// The format that a file's first bytes show, or nullptr.
const Format* format_of(std::string_view head) {
  const auto fits = [&](const Format& format) {
    return head.size() > format.offset && head.substr(format.offset).starts_with(format.bytes);
  };
  const auto found = std::find_if(kFormats.begin(), kFormats.end(), fits);
  return found == kFormats.end() ? nullptr : &*found;
}

}  // namespace

Objection not_text(const std::string& format, const std::string& remedy) {
  return {format, format + "; accepted: UTF-8 text, JSON lines (also .gz, .zst), Parquet; " + remedy};
}

Objection not_utf8(std::string_view bytes, std::size_t good, std::int64_t offset) {
  const std::string reason = fmt::format("not UTF-8: byte {} is 0x{:02X}", offset + static_cast<std::int64_t>(good),
                                         static_cast<unsigned char>(bytes[good]));
  return {reason, reason + "; convert it, for example: iconv -f LATIN1 -t UTF-8 FILE >NEW"};
}

bool is_text(std::string_view bytes, bool is_whole) {
  const std::size_t good = io::utf8_prefix(bytes);
  const bool may_be_cut = !is_whole && bytes.size() - good < 4;
  return bytes.find('\0') == std::string_view::npos && (good == bytes.size() || may_be_cut);
}

Objection objection_to(std::string_view bytes, bool is_whole) {
  const bool is_utf8 = is_text(bytes, is_whole);
  const Format* format = format_of(bytes);
  if (format != nullptr && (!is_utf8 || bytes.starts_with("%PDF-"))) return not_text(format->name, format->remedy);
  if (bytes.find('\0') != std::string_view::npos) {
    return {"binary", "not text: it holds a NUL byte; accepted: UTF-8 text, JSON lines (also .gz, .zst), Parquet"};
  }
  return is_utf8 ? Objection() : not_utf8(bytes, io::utf8_prefix(bytes), 0);
}

}  // namespace kozero::data
