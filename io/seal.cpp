// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <sstream>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/block_hashes.hpp>
#include <kozero/io/file_descriptor.hpp>
#include <kozero/io/seal.hpp>

namespace kozero::io {
namespace {

constexpr std::string_view kFirstWords = "KoZeRO weights 1, sealed ";
constexpr std::size_t kDigits = 32;
constexpr std::size_t kFirstLine = kFirstWords.size() + kDigits + 1;

struct Seal {
  std::int64_t bytes = 0;
  std::string hash;
  WeightsDescription description;
};

std::string block_of(const Seal& seal) {
  std::ostringstream text;
  text << "bytes " << seal.bytes << "\nxxh3_128 " << seal.hash << "\nstep " << seal.description.step << "\ntokens "
       << seal.description.tokens << "\nmodel " << seal.description.model << '\n';
  std::string rest = text.str();
  const std::size_t room = static_cast<std::size_t>(kSealBytes) - kFirstLine;
  require(rest.size() < room, "seal_file: the model's description takes more than the block of 4 KiB");
  rest.resize(room, '\0');
  return std::string(kFirstWords) + xxh3_128(rest) + "\n" + rest;
}

Seal parsed(const std::string& block, const std::string& path) {
  const auto refuse = [&](const char* reason) { throw Error(Failure::input, path + ": " + reason); };
  if (!block.starts_with(kFirstWords)) {
    refuse("not a weights file that KoZeRO wrote: it begins with no seal; other weights come in by kozero import");
  }
  const std::string rest = block.substr(kFirstLine);
  if (block.substr(kFirstWords.size(), kDigits) != xxh3_128(rest)) {
    refuse("its first 4096 bytes, the seal, are not what was written");
  }
  Seal seal;
  std::istringstream text(rest);
  std::string bytes, hash, step, tokens, model;
  text >> bytes >> seal.bytes >> hash >> seal.hash >> step >> seal.description.step >> tokens >>
      seal.description.tokens >> model;
  text.get();
  std::getline(text, seal.description.model);
  const bool in_order =
      bytes == "bytes" && hash == "xxh3_128" && step == "step" && tokens == "tokens" && model == "model";
  if (text.fail() || !in_order || seal.bytes < kSealBytes)
    refuse("its seal has other lines than bytes, xxh3_128, step, tokens, model");
  return seal;
}

/// The file's first kSealBytes, zeros behind its end.
std::string block_in(const FileDescriptor& file) {
  std::string block(static_cast<std::size_t>(kSealBytes), '\0');
  static_cast<void>(file.read_up_to(block, 0));
  return block;
}

/// Rank 0's, on every rank.
std::string block_of_first_rank(dist::Communicator& comm, const std::string& path) {
  return dist::from_first_rank(comm, [&] { return block_in(FileDescriptor(path, FileDescriptor::Use::read)); });
}

/// The hash of all bytes behind the seal. Collective.
std::string hash_behind(dist::Communicator& comm, const std::string& path, std::int64_t bytes) {
  std::string digits;
  for (const auto& hash : hash_spans(comm, path, blocks_of(kSealBytes, bytes - kSealBytes))) digits += hash;
  return xxh3_128(digits);
}

}  // namespace

void seal_file(dist::Communicator& comm, const std::string& path, const WeightsDescription& description) {
  const auto bytes = dist::agreed(comm, [&] { return FileDescriptor(path, FileDescriptor::Use::read).size(); });
  Seal seal{.bytes = bytes, .hash = {}, .description = description};
  seal.hash = hash_behind(comm, path, seal.bytes);
  dist::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    FileDescriptor file(path, FileDescriptor::Use::update);
    file.write_at(block_of(seal), 0);
    file.sync();
    file.close();
  });
}

WeightsDescription read_seal(const std::string& path) {
  return parsed(block_in(FileDescriptor(path, FileDescriptor::Use::read)), path).description;
}

WeightsDescription read_seal(dist::Communicator& comm, const std::string& path) {
  const std::string block = block_of_first_rank(comm, path);
  return dist::agreed(comm, [&] { return parsed(block, path).description; });
}

void verify_seal(dist::Communicator& comm, const std::string& path) {
  const std::string block = block_of_first_rank(comm, path);
  const Seal seal = dist::agreed(comm, [&] {
    const FileDescriptor file(path, FileDescriptor::Use::read);
    if (block_in(file) != block) refuse_other_bytes(comm, path);
    Seal found = parsed(block, path);
    if (file.size() == found.bytes) return found;
    throw Error(Failure::input,
                path + ": " + std::to_string(file.size()) + " bytes, its seal says " + std::to_string(found.bytes));
  });
  if (hash_behind(comm, path, seal.bytes) == seal.hash) return;
  throw Error(Failure::input,
              path + ": bytes 4096 to " + std::to_string(seal.bytes - 1) + " are not what its seal says",
              Error::Seen::by_all_ranks);
}

}  // namespace kozero::io
