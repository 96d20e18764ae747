// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/block_hashes.hpp>
#include <kozero/io/file_descriptor.hpp>

namespace kozero::io {

namespace {

constexpr std::size_t kWords = 4;  ///< of 32 bits, which a double carries exactly

using Words = std::array<double, kWords>;

Words words_of(const XXH128_hash_t& hash) {
  constexpr std::uint64_t kLow = 0xFFFFFFFF;
  return {static_cast<double>(hash.high64 >> 32U), static_cast<double>(hash.high64 & kLow),
          static_cast<double>(hash.low64 >> 32U), static_cast<double>(hash.low64 & kLow)};
}

std::string digits_of(const double* words) {
  std::string digits;
  for (std::size_t i = 0; i < kWords; ++i) digits += fmt::format("{:08x}", static_cast<std::uint32_t>(words[i]));
  return digits;
}

/// Rank 0's look at the file counts for all, so that the ranks share out the same blocks.
std::int64_t size_of(dist::Communicator& comm, const std::string& path) {
  const auto mine = dist::agreed(comm, [&]() -> std::int64_t {
    if (comm.rank() != 0) return 0;
    std::error_code problem;
    const auto size = std::filesystem::file_size(path, problem);
    if (problem) throw Error(Failure::input, path + ": cannot read: " + problem.message());
    return static_cast<std::int64_t>(size);
  });
  return std::stoll(comm.broadcast_control(std::to_string(mine)));
}

/// A span's hash, read in pieces that stay in a core's cache.
Words words_of(const FileDescriptor& file, const Span& span, std::vector<char>& piece) {
  const std::unique_ptr<XXH3_state_t, void (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                     [](XXH3_state_t* old) { XXH3_freeState(old); });
  require(state != nullptr && XXH3_128bits_reset(state.get()) == XXH_OK, "XXH3: no state");
  for (std::int64_t done = 0; done < span.extent;) {
    const auto extent = std::min(static_cast<std::int64_t>(piece.size()), span.extent - done);
    file.read_at({piece.data(), static_cast<std::size_t>(extent)}, span.offset + done);
    require(XXH3_128bits_update(state.get(), piece.data(), static_cast<std::size_t>(extent)) == XXH_OK, "XXH3: update");
    done += extent;
  }
  return words_of(XXH3_128bits_digest(state.get()));
}

/// The hashes of this rank's spans, `rounds` of them; those past the last are zero.
std::vector<double> my_words(dist::Communicator& comm, const std::string& path, const std::vector<Span>& spans,
                             std::size_t rounds) {
  constexpr std::size_t kPiece = std::size_t{256} << 10;
  const FileDescriptor file(path, FileDescriptor::Use::read);
  std::vector<char> piece(kPiece);
  std::vector<double> words;
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t mine = round * static_cast<std::size_t>(comm.size()) + static_cast<std::size_t>(comm.rank());
    const Words one = mine < spans.size() ? words_of(file, spans[mine], piece) : Words{};
    words.insert(words.end(), one.begin(), one.end());
  }
  return words;
}

}  // namespace

std::string xxh3_128(std::string_view bytes) {
  return digits_of(words_of(XXH3_128bits(bytes.data(), bytes.size())).data());
}

std::vector<Span> blocks_of(std::int64_t offset, std::int64_t extent) {
  std::vector<Span> spans;
  for (std::int64_t done = 0; done < extent; done += kBlockBytes) {
    spans.push_back({offset + done, std::min(kBlockBytes, extent - done)});
  }
  return spans;
}

std::vector<std::string> hash_spans(dist::Communicator& comm, const std::string& path, const std::vector<Span>& spans) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::size_t rounds = (spans.size() + ranks - 1) / ranks;
  const auto mine = dist::agreed(comm, [&] { return my_words(comm, path, spans, rounds); });
  const auto all = comm.gather_control(mine);
  std::vector<std::string> hashes;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    hashes.push_back(digits_of(all.data() + (i % ranks * rounds + i / ranks) * kWords));
  }
  return hashes;
}

void refuse_other_bytes(const dist::Communicator& comm, const std::string& path) {
  throw Error(Failure::input,
              fmt::format("{}: ranks 0 and {} find different files there: it was replaced meanwhile, or "
                          "their nodes do not share the folder; try again, or copy one to all nodes",
                          path, comm.rank()));
}

FileHashes hash_blocks(dist::Communicator& comm, const std::string& path) {
  const std::int64_t size = size_of(comm, path);
  return {size, hash_spans(comm, path, blocks_of(0, size))};
}

void verify_blocks(dist::Communicator& comm, const std::string& path, const FileHashes& wanted) {
  const std::int64_t size = size_of(comm, path);
  if (size != wanted.size) {
    throw Error(Failure::input, fmt::format("{}: {} bytes, the manifest says {}", path, size, wanted.size),
                Error::Seen::by_all_ranks);
  }
  const FileHashes found = hash_blocks(comm, path);
  const auto [differs, other] =
      std::mismatch(found.blocks.begin(), found.blocks.end(), wanted.blocks.begin(), wanted.blocks.end());
  if (differs == found.blocks.end() && other == wanted.blocks.end()) return;
  const std::int64_t block = differs - found.blocks.begin();
  throw Error(
      Failure::input,
      fmt::format("{}: bytes {} to {} are not what the manifest says (block {} of {})", path, block * kBlockBytes,
                  std::min(size, (block + 1) * kBlockBytes) - 1, block + 1, blocks_of(0, size).size()),
      Error::Seen::by_all_ranks);
}

}  // namespace kozero::io
