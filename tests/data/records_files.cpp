// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// records_files.cpp: zlib's and zstd's compressors.
#include "records_files.hpp"
#include <zlib.h>
#include <zstd.h>
#include <stdexcept>

namespace kozero::tests {

std::string gzipped(const std::string& bytes) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16;
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("zlib");
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("zlib");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd_frame(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  constexpr int kLevel = 3;
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), kLevel));
  return out;
}

}  // namespace kozero::tests
