// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// safetensors_bytes.hpp: the bytes of a valid or invalid safetensors file from its header's text.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

namespace kozero::io {

/// The 8 bytes of `length` in the file, whether or not it is the header's length.
inline std::string length_bytes(std::uint64_t length) {
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes;
}

/// Length, header and `data_bytes` bytes of data: 0, 1, 2 ...
inline std::string safetensors_bytes(const std::string& header, std::size_t data_bytes) {
  std::string bytes = length_bytes(header.size()) + header;
  for (std::size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

/// `{ENTRIES}`.
inline std::string header_of(const std::string& entries) { return std::string(1, '{').append(entries).append(1, '}'); }

/// `"NAME":{"dtype":...}` of a header.
inline std::string entry_text(const std::string& name, const std::string& dtype, const std::string& shape,
                              const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

}  // namespace kozero::io
