// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// tensorboard.cpp: protocol buffers by hand, for two messages do not need a library, and records with their checksums.
#include "io/run/tensorboard.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <array>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include "io/run/run_status.hpp"

namespace kozero::io {
namespace {

// Protocol buffers: a field is a varint with its number and its kind, then its value. Numbers are little-endian.
enum class Wire : std::uint64_t { varint = 0, eight_bytes = 1, text = 2, four_bytes = 5 };

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) to += static_cast<char>(value | 0x80U);
  to += static_cast<char>(value);
}

template <class Number>
void put_bytes(std::string& to, Number number) {
  for (std::size_t i = 0; i < sizeof(number); ++i) to += static_cast<char>(number >> (8 * i));
}

void put_head(std::string& to, std::uint64_t field, Wire wire) {
  put_varint(to, field << 3U | static_cast<std::uint64_t>(wire));
}

void put_text(std::string& to, std::uint64_t field, const std::string& text) {
  put_head(to, field, Wire::text);
  put_varint(to, text.size());
  to += text;
}

/// Event: wall_time = 1, step = 2, and one of file_version = 3, summary = 5, session_log = 7.
std::string event(double time, std::int64_t step, std::uint64_t field, const std::string& content) {
  std::string bytes;
  put_head(bytes, 1, Wire::eight_bytes);
  put_bytes(bytes, std::bit_cast<std::uint64_t>(time));
  put_head(bytes, 2, Wire::varint);
  put_varint(bytes, static_cast<std::uint64_t>(step));
  put_text(bytes, field, content);
  return bytes;
}

/// Summary: value = 1, with tag = 1 and simple_value = 2.
void put_value(std::string& summary, const std::string& tag, float number) {
  std::string value;
  put_text(value, 1, tag);
  put_head(value, 2, Wire::four_bytes);
  put_bytes(value, std::bit_cast<std::uint32_t>(number));
  put_text(summary, 1, value);
}

/// CRC-32C (Castagnoli, RFC 3720), rotated and shifted as TensorFlow's records have it.
std::uint32_t masked_checksum(const std::string& bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
      std::uint32_t rest = i;
      for (int bit = 0; bit < 8; ++bit) rest = rest >> 1U ^ (rest & 1U) * 0x82F63B78U;
      table[i] = rest;
    }
    return table;
  }();
  std::uint32_t sum = ~0U;
  for (const char byte : bytes) sum = kTable[(sum ^ static_cast<unsigned char>(byte)) & 0xFFU] ^ sum >> 8U;
  return std::rotr(~sum, 15) + 0xA282EAD8U;
}

std::string record(const std::string& bytes) {
  std::string text;
  put_bytes(text, static_cast<std::uint64_t>(bytes.size()));
  put_bytes(text, masked_checksum(text));
  text += bytes;
  put_bytes(text, masked_checksum(bytes));
  return text;
}

/// Creates the folder.
std::string file_in(const std::string& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) throw Error(Failure::write, folder + ": cannot create: " + problem.message());
  const auto now = static_cast<std::int64_t>(seconds_since_1970());
  return fmt::format("{}/events.out.tfevents.{}.{}.{}", folder, now, host_name(), ::getpid());
}

}  // namespace

TensorBoardFile::TensorBoardFile(const std::string& folder, std::int64_t first_step)
    : file_(file_in(folder), FileDescriptor::Use::create) {
  // SessionLog: status = 1, START = 1. The reader drops points from `first_step` on that it has of other files.
  std::string starts;
  put_head(starts, 1, Wire::varint);
  put_varint(starts, 1);
  const double now = seconds_since_1970();
  file_.write(record(event(now, 0, 3, "brain.Event:2")) + record(event(now, first_step, 7, starts)));
}

void TensorBoardFile::write(const StepMetrics& row) {
  std::string summary;
  const nlohmann::json numbers = nlohmann::json::parse(to_json_line(row)).flatten();
  for (const auto& [path, value] : numbers.items()) {
    if (path == "/step" || path == "/time") continue;
    if (value.is_number() || value.is_boolean()) {
      put_value(summary, path.substr(1), value.is_boolean() ? float(value.get<bool>()) : value.get<float>());
    }
  }
  file_.write(record(event(row.time, row.step, 5, summary)));
}

}  // namespace kozero::io
