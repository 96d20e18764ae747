// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/block_hashes.hpp>
#include <kozero/io/file_descriptor.hpp>

namespace kozero::io {

namespace {

constexpr std::size_t kWords = 4;  ///< of 32 bits, which a double carries exactly

using Words = std::array<double, kWords>;

Words words_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
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

std::int64_t num_blocks(std::int64_t size) { return (size + kBlockBytes - 1) / kBlockBytes; }

/// The hashes of this rank's blocks, `rounds` of them; those past the end are zero.
std::vector<double> my_words(dist::Communicator& comm, const std::string& path, std::int64_t size, std::int64_t rounds) {
  const FileDescriptor file(path, FileDescriptor::Use::read);
  std::vector<char> buffer(static_cast<std::size_t>(std::min(size, kBlockBytes)));
  std::vector<double> words;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::int64_t first = (round * comm.size() + comm.rank()) * kBlockBytes;
    const auto extent = static_cast<std::size_t>(std::clamp<std::int64_t>(size - first, 0, kBlockBytes));
    if (extent > 0) file.read_at({buffer.data(), extent}, first);
    const Words one = extent > 0 ? words_of({buffer.data(), extent}) : Words{};
    words.insert(words.end(), one.begin(), one.end());
  }
  return words;
}

}  // namespace

std::string xxh3_128(std::string_view bytes) { return digits_of(words_of(bytes).data()); }

FileHashes hash_blocks(dist::Communicator& comm, const std::string& path) {
  FileHashes hashes{size_of(comm, path), {}};
  const std::int64_t blocks = num_blocks(hashes.size);
  const std::int64_t rounds = (blocks + comm.size() - 1) / comm.size();
  const auto mine = dist::agreed(comm, [&] { return my_words(comm, path, hashes.size, rounds); });
  const auto all = comm.gather_control(mine);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t place = block % comm.size() * rounds + block / comm.size();
    hashes.blocks.push_back(digits_of(all.data() + place * static_cast<std::int64_t>(kWords)));
  }
  return hashes;
}

void verify_blocks(dist::Communicator& comm, const std::string& path, const FileHashes& wanted) {
  const std::int64_t size = size_of(comm, path);
  if (size != wanted.size) {
    throw Error(Failure::input, fmt::format("{}: {} bytes, the manifest says {}", path, size, wanted.size),
                Error::Seen::by_all_ranks);
  }
  const FileHashes found = hash_blocks(comm, path);
  const auto [differs, other] = std::mismatch(found.blocks.begin(), found.blocks.end(), wanted.blocks.begin(), wanted.blocks.end());
  if (differs == found.blocks.end() && other == wanted.blocks.end()) return;
  const std::int64_t block = differs - found.blocks.begin();
  throw Error(Failure::input,
              fmt::format("{}: bytes {} to {} are not what the manifest says (block {} of {})", path, block * kBlockBytes,
                          std::min(size, (block + 1) * kBlockBytes) - 1, block + 1, num_blocks(size)),
              Error::Seen::by_all_ranks);
}

}  // namespace kozero::io
