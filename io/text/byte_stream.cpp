// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// byte_stream.cpp: files as they are stored, and streams of zlib and libzstd over them.
#include "io/text/byte_stream.hpp"
#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#include <array>
#include <vector>

#include <kozero/core/error.hpp>
#include "io/posix/file.hpp"

namespace kozero::io {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kInputBytes = std::size_t{64} << 10;
constexpr std::string_view kGzipMagic = "\x1F\x8B"sv;
constexpr std::string_view kZstdMagic = "\x28\xB5\x2F\xFD"sv;

class StoredBytes final : public ByteStream {
 public:
  explicit StoredBytes(const std::string& path) : file_(path, FileDescriptor::Use::read) {}

  std::size_t read(std::span<char> bytes) override {
    const std::int64_t got = file_.read_up_to(bytes, taken_);
    taken_ += got;
    return static_cast<std::size_t>(got);
  }
  [[nodiscard]] std::int64_t taken() const override { return taken_; }

 private:
  FileDescriptor file_;
  std::int64_t taken_ = 0;
};

/// A compressed file's bytes, a buffer at a time.
class CompressedInput {
 public:
  explicit CompressedInput(const std::string& path) : path_(path), stored_(path), buffer_(kInputBytes) {}

  /// The bytes that are not used yet; empty only at the end of the file.
  std::string_view ahead() {
    if (used_ == size_) {
      used_ = 0;
      size_ = stored_.read(buffer_);
    }
    return {buffer_.data() + used_, size_ - used_};
  }
  void use(std::size_t count) { used_ += count; }
  [[nodiscard]] std::int64_t taken() const { return stored_.taken() - static_cast<std::int64_t>(size_ - used_); }

  [[noreturn]] void refuse(const char* format, const std::string& why) const {
    throw Error(Failure::input, fmt::format("{}: {}: {} at byte {} of the file", path_, format, why, taken()));
  }
  [[noreturn]] void refuse_end(const char* format) const {
    throw Error(Failure::input,
                fmt::format("{}: {}: the file ends too early, after byte {}; fetch or compress it again", path_, format,
                            taken()));
  }

 private:
  std::string path_;
  StoredBytes stored_;
  std::vector<char> buffer_;
  std::size_t used_ = 0;
  std::size_t size_ = 0;
};

class GzipBytes final : public ByteStream {
 public:
  explicit GzipBytes(const std::string& path) : input_(path) {
    constexpr int kGzipOfAnyWindow = 15 + 16;
    require(inflateInit2(&stream_, kGzipOfAnyWindow) == Z_OK, "inflateInit2");
  }
  ~GzipBytes() override { inflateEnd(&stream_); }
  GzipBytes(const GzipBytes&) = delete;
  GzipBytes& operator=(const GzipBytes&) = delete;

  std::size_t read(std::span<char> bytes) override {
    stream_.next_out = reinterpret_cast<Bytef*>(bytes.data());
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(bytes.size(), kMostOutput));
    const uInt room = stream_.avail_out;
    while (stream_.avail_out == room) {
      const std::string_view ahead = input_.ahead();
      if (between_members_ && ends_with_padding(ahead)) return 0;
      if (ahead.empty()) input_.refuse_end("gzip");
      between_members_ = false;
      // zlib does not write to its input.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(ahead.data()));
      stream_.avail_in = static_cast<uInt>(ahead.size());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      input_.use(ahead.size() - stream_.avail_in);
      if (result == Z_STREAM_END) {
        between_members_ = true;
        inflateReset(&stream_);
      } else if (result != Z_OK) {
        input_.refuse("gzip", stream_.msg == nullptr ? "damaged" : fmt::format("damaged ({})", stream_.msg));
      }
    }
    return room - stream_.avail_out;
  }
  [[nodiscard]] std::int64_t taken() const override { return input_.taken(); }

 private:
  /// Behind a member, whether only zeros follow, as tapes and block devices leave, or nothing. gunzip ignores zeros,
  /// and other bytes too, with a warning; here these are an error, since they may be a member that was damaged.
  bool ends_with_padding(std::string_view ahead) {
    if (ahead.starts_with(kGzipMagic.front())) return false;
    for (; !ahead.empty(); ahead = input_.ahead()) {
      if (const std::size_t other = ahead.find_first_not_of('\0'); other != std::string_view::npos) {
        input_.use(other);
        input_.refuse("gzip",
                      "behind the last member there is something else; to leave it out: gunzip -c FILE | gzip "
                      ">NEW; it begins");
      }
      input_.use(ahead.size());
    }
    return true;
  }

  static constexpr std::size_t kMostOutput = std::size_t{1} << 30;

  CompressedInput input_;
  z_stream stream_{};
  bool between_members_ = false;
};

class ZstdBytes final : public ByteStream {
 public:
  explicit ZstdBytes(const std::string& path) : input_(path), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    require(stream_ != nullptr, "ZSTD_createDStream");
  }

  std::size_t read(std::span<char> bytes) override {
    ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
    while (out.pos == 0) {
      const std::string_view ahead = input_.ahead();
      // At the end of the file, what the decompressor still holds comes out.
      ZSTD_inBuffer in{ahead.data(), ahead.size(), 0};
      if (ahead.empty() && between_frames_) return 0;
      const std::size_t result = ZSTD_decompressStream(stream_.get(), &out, &in);
      input_.use(in.pos);
      if (ZSTD_isError(result) != 0U) input_.refuse("zstd", fmt::format("damaged ({})", ZSTD_getErrorName(result)));
      between_frames_ = result == 0;
      if (ahead.empty() && out.pos == 0 && !between_frames_) input_.refuse_end("zstd");
    }
    return out.pos;
  }
  [[nodiscard]] std::int64_t taken() const override { return input_.taken(); }

 private:
  CompressedInput input_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  bool between_frames_ = true;
};

}  // namespace

std::string_view compression_of(std::string_view head) {
  if (head.starts_with(kGzipMagic)) return "gzip";
  return head.starts_with(kZstdMagic) ? "zstd" : "";
}

std::unique_ptr<ByteStream> open_bytes(const std::string& path) {
  std::array<char, 4> head{};
  const auto got = FileDescriptor(path, FileDescriptor::Use::read).read_up_to(head, 0);
  const std::string_view compression = compression_of({head.data(), static_cast<std::size_t>(got)});
  if (compression == "gzip") return std::make_unique<GzipBytes>(path);
  if (compression == "zstd") return std::make_unique<ZstdBytes>(path);
  return std::make_unique<StoredBytes>(path);
}

}  // namespace kozero::io
