// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_token_shard.cpp: shards are written and read back, alone and as a sequence; damaged ones are refused.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <cstring>
#include <filesystem>
#include <numeric>

#include <kozero/data/token_shard.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>

namespace kozero::data {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using io::kBlockBytes;
using tests::bytes_of;
using tests::ScratchFolder;
using tests::thrown_by;

namespace {

std::vector<Token> counted_tokens(std::int64_t first, std::int64_t count, std::int64_t vocab) {
  std::vector<Token> tokens(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    tokens[static_cast<std::size_t>(i)] = static_cast<Token>((first + i) * 7919 % vocab);
  }
  return tokens;
}

void write_shard(const std::string& path, std::int64_t vocab, const std::vector<Token>& tokens) {
  TokenShardWriter writer(path, vocab);
  writer.append(std::span(tokens).first(tokens.size() / 3));
  writer.append(std::span(tokens).subspan(tokens.size() / 3));
  writer.close();
}

/// A shard written by hand, as another program would write it.
std::string raw_shard(std::int32_t magic, std::int32_t version, std::int32_t count, const std::string& payload) {
  std::array<std::int32_t, 256> header{};
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  std::string bytes(1024, '\0');
  std::memcpy(bytes.data(), header.data(), bytes.size());
  return bytes + payload;
}

}  // namespace

TEST_CASE("token shards are llm.c's, narrow and wide") {
  const ScratchFolder folder("shards");
  for (const std::int64_t vocab : {256, 65536, 65537, 151936}) {
    const auto tokens = counted_tokens(0, 1001, vocab);
    write_shard(folder / "a.bin", vocab, tokens);
    const bool wide = vocab > 65536;
    const std::string bytes = bytes_of(folder / "a.bin");
    std::array<std::int32_t, 3> header{};
    std::memcpy(header.data(), bytes.data(), sizeof(header));
    CHECK(header == std::array<std::int32_t, 3>{wide ? 20240801 : 20240520, wide ? 7 : 1, 1001});
    CHECK(bytes.size() == 1024 + 1001 * (wide ? 4U : 2U));

    const TokenShard shard(folder / "a.bin", vocab);
    CHECK(shard.num_tokens() == 1001);
    std::vector<Token> read(500);
    shard.read(501, read);
    CHECK(std::equal(read.begin(), read.end(), tokens.begin() + 501));
    CHECK(thrown_by([&] { shard.read(502, read); }).status == 1);
    CHECK(!std::filesystem::exists(folder / "a.bin.partial"));
  }
}

TEST_CASE("a writer that fails leaves no file") {
  const ScratchFolder folder("noshard");
  const std::vector<Token> bad = {1, 2, 300};
  CHECK(thrown_by([&] { write_shard(folder / "a.bin", 256, bad); }).status == 1);
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(thrown_by([&] { TokenShardWriter(folder / "no/where.bin", 256); }).status == 4);
}

TEST_CASE("hostile shards are refused in one line") {
  const ScratchFolder folder("hostile");
  const std::string four(8, '\1');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "not a token shard: 0 bytes, less than the header's 1024"},
      {std::string(1023, 'x'), "not a token shard: 1023 bytes, less than the header's 1024"},
      {raw_shard(1, 1, 4, four),
       "not a token shard: magic 1, accepted are 20240520 and 20240801; datatrove's and Megatron's shards need their "
       "index "
       "beside them"},
      {raw_shard(20240520, 2, 4, four), "not a token shard: version 2, accepted with magic 20240520 is 1"},
      {raw_shard(20240801, 1, 2, four), "not a token shard: version 1, accepted with magic 20240801 is 7"},
      {raw_shard(20240520, 1, -1, four), "not a token shard: a count of -1 tokens"},
      {raw_shard(20240520, 1, 5, four),
       "not a token shard: its header counts 5 tokens, 1034 bytes, but it has 1032: truncated"},
      {raw_shard(20240520, 1, 3, four), "not a token shard: its header counts 3 tokens, 1030 bytes, but it has 1032"},
      {raw_shard(20240801, 7, 2147483647, four),
       "not a token shard: its header counts 2147483647 tokens, 8589935612 bytes, but it has 1032: truncated"}};
  for (const auto& [bytes, reason] : cases) {
    const auto path = folder.put("bad.bin", bytes);
    const auto error = thrown_by([&] { TokenShard(path, 50257); });
    CHECK(error.status == 3);
    CHECK(error.text == path + ": " + reason);
  }
  CHECK_THAT(thrown_by([&] { TokenShard(folder / "none.bin", 9); }).text,
             EndsWith("none.bin: cannot open: No such file or directory"));
  CHECK_THAT(thrown_by([&] { TokenShard(folder.path(), 9); }).text,
             EndsWith(": not a regular file but a folder; name the file in it"));
}

TEST_CASE("datatrove's and Megatron's shards are read by the index beside them") {
  const ScratchFolder folder("formats");
  const auto bytes_of_numbers = [](const auto& numbers) {
    return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(numbers[0]));
  };
  const std::vector<Token> ids = {5, 7, 60000, 9, 1};
  const std::string narrow = bytes_of_numbers(std::vector<std::uint16_t>(ids.begin(), ids.end()));
  const std::string wide = bytes_of_numbers(std::vector<std::uint32_t>(ids.begin(), ids.end()));
  const std::string ends = bytes_of_numbers(std::vector<std::uint64_t>{2, 5});
  const auto megatron = [&](std::uint64_t version, char type, std::uint64_t count,
                            const std::vector<std::int32_t>& sizes) {
    return std::string("MMIDIDX\0\0", 9) + bytes_of_numbers(std::vector{version}) + type +
           bytes_of_numbers(std::vector<std::uint64_t>{count, count + 1}) + bytes_of_numbers(sizes) +
           bytes_of_numbers(std::vector<std::int64_t>{0, 4}) + bytes_of_numbers(std::vector<std::int64_t>{0, 1, 2});
  };
  for (const std::string& bytes : {narrow, wide}) {
    const std::string ds = folder.put("a.ds", bytes);
    folder.put("a.ds.index", ends);
    const std::string bin = folder.put("b.bin", bytes);
    folder.put("b.idx", megatron(1, bytes == narrow ? 8 : 4, 2, {2, 3}));
    for (const auto& path : {ds, bin}) {
      const TokenShard shard(path, 60001);
      std::vector<Token> read(5);
      shard.read(0, read);
      CHECK(read == ids);
      shard.read(2, std::span(read).first(2));
      CHECK(read[0] == 60000);
      CHECK(shard.check_block(0, std::atomic<bool>(false)).size() == io::kHashDigits);
      const auto error = thrown_by([&] { TokenShard(path, 60000).check_block(0, std::atomic<bool>(false)); });
      CHECK(error.text == path + ": token 2 is 60000, outside the vocabulary of 60000");
    }
  }
  const std::string ds = folder / "a.ds";
  const std::string bin = folder / "b.bin";
  const auto refusal = [](const std::string& path) { return thrown_by([&] { TokenShard(path, 60001); }).text; };
  folder.put("a.ds.index", ends.substr(3));
  CHECK(refusal(ds) == ds + ".index: not a token shard: 13 bytes, not 64-bit positions");
  folder.put("a.ds.index", bytes_of_numbers(std::vector<std::uint64_t>{2, 6}));
  CHECK_THAT(refusal(ds), ContainsSubstring("counts 6 tokens, but it has 20 bytes, neither 2 nor 4 per token"));
  folder.put("b.idx", megatron(2, 4, 2, {2, 3}));
  CHECK_THAT(refusal(bin), ContainsSubstring("b.idx: not a token shard: version 2, accepted is 1"));
  folder.put("b.idx", megatron(1, 6, 2, {2, 3}));
  CHECK_THAT(refusal(bin), ContainsSubstring("ids of type 6, accepted are 4 (int32) and 8 (uint16)"));
  folder.put("b.idx", megatron(1, 4, 2, {2, 2}));
  CHECK_THAT(refusal(bin), ContainsSubstring("counts 4 tokens of 4 bytes, but it has 20 bytes"));
  folder.put("b.idx", megatron(1, 4, std::uint64_t{1} << 62, {2, 3}));
  CHECK_THAT(refusal(bin), ContainsSubstring("sequences, more than it has bytes for"));
  std::filesystem::remove(folder / "b.idx");
  CHECK_THAT(refusal(bin), ContainsSubstring("less than the header's 1024"));
}

TEST_CASE("ids outside the vocabulary are found where they are read") {
  const ScratchFolder folder("ids");
  write_shard(folder / "a.bin", 50257, {5, 6, 700, 8});
  const TokenShard narrow(folder / "a.bin", 256);
  std::vector<Token> two(2);
  narrow.read(0, two);
  const auto error = thrown_by([&] { narrow.read(1, two); });
  CHECK(error.status == 3);
  CHECK(error.text == (folder / "a.bin") + ": token 2 is 700, outside the vocabulary of 256");
  CHECK(thrown_by([&] { TokenShard(folder / "a.bin", 700).read(1, two); }).status == 3);
  CHECK(thrown_by([&] { TokenShard(folder / "a.bin", 701).read(1, two); }).status == 0);
  const auto path = folder.put("b.bin", raw_shard(20240801, 7, 1, "\xFF\xFF\xFF\xFF"));
  std::vector<Token> one(1);
  CHECK(thrown_by([&] { TokenShard(path, INT32_MAX).read(0, one); }).text ==
        path + ": token 0 is 4294967295, outside the vocabulary of 2147483647");
}

TEST_CASE("a shard that shrinks while it is open is an error that names it, and no signal") {
  const ScratchFolder folder("shrinks");
  const auto path = folder / "a.bin";
  write_shard(path, 256, counted_tokens(0, 100000, 256));
  const TokenShard shard(path, 256);
  std::vector<Token> read(1000);
  shard.read(99000, read);
  std::filesystem::resize_file(path, 5000);
  for (const auto& error :
       {thrown_by([&] { shard.read(99000, read); }), thrown_by([&] { shard.check_block(0, false); })}) {
    CHECK(error.status == 3);
    CHECK(error.text == path + ": it shrank while it was in use, from 201024 to 5000 bytes");
  }
  std::filesystem::remove(path);
  CHECK(thrown_by([&] { shard.read(10, read); }).status == 0);  // the open file still exists
}

TEST_CASE("every block of a shard is held to the hashes that were written with it") {
  const ScratchFolder folder("blocks");
  const auto path = folder / "a.bin";
  write_shard(path, 256, counted_tokens(0, kBlockBytes / 2 + 10000, 256));
  const auto digits_of = [&] {
    const TokenShard shard(path, 256);
    REQUIRE(shard.num_blocks() == 2);
    return std::vector<std::string>{shard.check_block(0, false), shard.check_block(1, false)};
  };
  const TokenShard shard(path, 256);
  REQUIRE(shard.recorded_hashes().has_value());
  CHECK(digits_of() == shard.recorded_hashes()->blocks);
  CHECK(shard.check_block(0, true).empty());
  const std::string sampled = shard.sampled_hash();

  auto bytes = bytes_of(path);
  bytes[kBlockBytes + 77] = static_cast<char>(bytes[kBlockBytes + 77] ^ 4);
  folder.put("a.bin", bytes);
  CHECK(thrown_by([&] { TokenShard(path, 256).check_block(0, false); }).status == 0);
  const auto error = thrown_by([&] { TokenShard(path, 256).check_block(1, false); });
  CHECK(error.status == 3);
  CHECK_THAT(error.text,
             StartsWith(path + ": bytes 16777216 to 16798239 are not what " + path + ".xxh3 says (block 2 of 2): "));
  CHECK(TokenShard(path, 256).sampled_hash() == sampled);  // the sample does not include the changed byte
  bytes[3000] = static_cast<char>(bytes[3000] ^ 1);
  folder.put("a.bin", bytes);
  CHECK(TokenShard(path, 256).sampled_hash() != sampled);

  folder.put("a.bin.xxh3", R"({"size": 17, "xxh3_128": ["00"]})");
  CHECK_THAT(thrown_by([&] { TokenShard(path, 256); }).text, ContainsSubstring(" bytes, " + path + ".xxh3 says 17; "));
  for (const char* damaged : {"", "{", R"({"size": 17})", R"({"size": -1, "xxh3_128": []})"}) {
    folder.put("a.bin.xxh3", damaged);
    CHECK(thrown_by([&] { TokenShard(path, 256); }).status == 3);
  }
}

TEST_CASE("one id outside the vocabulary is found wherever it lies, with its position") {
  const ScratchFolder folder("far");
  for (const std::int64_t vocab : {60000, 70000}) {
    const auto path = folder / (std::to_string(vocab) + ".bin");
    for (const std::int64_t position : {0L, 511L, 131072L - 512L, 4400000L, 8999999L}) {
      auto tokens = counted_tokens(0, 9000000, 50000);
      tokens[static_cast<std::size_t>(position)] = 50257;
      write_shard(path, vocab, tokens);
      const TokenShard shard(path, 50257);
      std::string text;
      for (std::int64_t block = 0; block < shard.num_blocks(); ++block) {
        text += thrown_by([&] { shard.check_block(block, false); }).text;
      }
      CHECK(text == path + ": token " + std::to_string(position) + " is 50257, outside the vocabulary of 50257");
    }
  }
}

TEST_CASE("several shards read as one sequence") {
  const ScratchFolder folder("sequence");
  const std::vector<std::int64_t> sizes = {10, 0, 1, 57};
  std::vector<std::string> paths;
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) {
    paths.push_back(folder / (std::to_string(paths.size()) + ".bin"));
    write_shard(paths.back(), 300, counted_tokens(total, size, 300));
    total += size;
  }
  const TokenShards shards(paths, 300);
  REQUIRE(shards.num_tokens() == total);
  const auto all = counted_tokens(0, total, 300);
  for (std::int64_t first = 0; first <= total; ++first) {
    std::vector<Token> read(static_cast<std::size_t>(std::min<std::int64_t>(15, total - first)));
    shards.read(first, read);
    CHECK(std::equal(read.begin(), read.end(), all.begin() + first));
  }
  std::vector<Token> one(1);
  CHECK(thrown_by([&] { shards.read(total, one); }).status == 1);
  CHECK(thrown_by([] { TokenShards({}, 300); }).text == "data.tokens: no file given");
}

TEST_CASE("an order of shards repeats them in the sequence") {
  const ScratchFolder folder("order");
  std::vector<std::string> paths;
  for (Token first = 0; first < 30; first += 10) {
    paths.push_back(folder / (std::to_string(first) + ".bin"));
    TokenShardWriter writer(paths.back(), 100);
    writer.append(std::vector<Token>{first, first + 1});
    writer.close();
  }
  const TokenShards mixed(paths, 100, {2, 0, 1, 0, 1});
  REQUIRE(mixed.num_tokens() == 10);
  std::vector<Token> all(10);
  mixed.read(0, all);
  CHECK(all == std::vector<Token>{20, 21, 0, 1, 10, 11, 0, 1, 10, 11});
  std::vector<Token> part(4);
  mixed.read(5, part);
  CHECK(part == std::vector<Token>{11, 0, 1, 10});
  CHECK(mixed.shards().size() == 3);
  CHECK(mixed.order() == "2 0 1 0 1");
  CHECK(TokenShards(paths, 100).order().empty());
  CHECK(TokenShards(paths, 100, {0, 1, 2}).order().empty());
  CHECK(TokenShards(paths, 100, {0, 2, 1}).order() == "0 2 1");
}

}  // namespace kozero::data
