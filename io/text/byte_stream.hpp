// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// byte_stream.hpp: the bytes of a file from front to back, decompressed if the file is gzip or zstd.
// Members (gzip) and frames (zstd) that follow each other are one stream, as gunzip and unzstd have it.
// gzip: RFC 1952, zlib; zstd: RFC 8878, libzstd.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kozero::io {

/// Holds at most 1 MiB besides what a decompressor needs: 32 KiB for gzip, 128 MiB for zstd (`unzstd` without --long).
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Fills the front of `bytes` and returns how many; 0 only at the end. Throws Error(input), "PATH: REASON", if the
  /// file cannot be read, or its compressed bytes are damaged or end too early.
  virtual std::size_t read(std::span<char> bytes) = 0;
  /// Bytes of the file, as it is stored, that were taken so far.
  [[nodiscard]] virtual std::int64_t taken() const = 0;
};

/// "gzip" or "zstd" for the first bytes of such a file; "" for other bytes.
std::string_view compression_of(std::string_view head);

/// Throws Error(input) if the file cannot be opened.
std::unique_ptr<ByteStream> open_bytes(const std::string& path);

}  // namespace kozero::io
