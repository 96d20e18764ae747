// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_prepare.cpp: text becomes token shards once, in a folder or in the cache; each source has its own shards.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include <kozero/data/prepare.hpp>
#include <kozero/data/token_cache.hpp>
#include <kozero/data/token_shard.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/text/tokenizer.hpp"

namespace kozero::data {

using io::make_tokenizer;
using tests::bytes_of;
using tests::ScratchFolder;
using tests::thrown_by;
namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

std::string story(int first, int lines) {
  std::string text;
  for (int i = first; i < first + lines; ++i) {
    text +=
        "line " + std::to_string(i) + ": the quick brown fox jumps over the lazy dog " + std::to_string(i * i) + "\n";
  }
  return text;
}

std::vector<Token> tokens_of(const TokenSplit& split, std::int64_t vocab) {
  if (split.files.empty()) return {};
  const TokenShards shards(split.files, vocab);
  std::vector<Token> tokens(static_cast<std::size_t>(shards.num_tokens()));
  shards.read(0, tokens);
  return tokens;
}

}  // namespace

TEST_CASE("text that changes while it is read is refused, and leaves no tokens") {
  const ScratchFolder folder("changed");
  folder.put("text/a.txt", story(0, 100));
  const PrepareOrder order{{folder / "text"}, "bytes", 0.0, folder / "out"};
  const auto files = find_text({folder / "text"});
  folder.put("text/a.txt", story(0, 101));
  CHECK_THAT(
      thrown_by([&] { make_tokens(order, files, folder / "out", "0", *distributed::make_self_communicator()); }).text,
      ContainsSubstring("text/a.txt: it changed while it was read"));
  CHECK(!fs::exists(fs::path(folder / "out") / kTokensDescription));
}

TEST_CASE("text becomes train and validation tokens, all of it, once") {
  const ScratchFolder folder("prepare");
  folder.put("text/a.txt", story(0, 2000));
  folder.put("text/b.txt", story(2000, 1000));
  for (const std::string tokenizer : {"bytes", "bpe:500"}) {
    const auto made = prepare({{folder / "text"}, tokenizer, 0.1, folder / ("out-" + tokenizer)});
    CHECK(!made.reused);
    CHECK(made.tokenizer == tokenizer);
    const auto again = make_tokenizer(made.tokenizer_file);
    CHECK(again->vocab_size() == made.vocab);
    std::string train, val;
    for (const Token token : tokens_of(made.train, made.vocab)) {
      if (token != again->end_of_text()) train += again->decode(std::vector<Token>{token});
    }
    for (const Token token : tokens_of(made.val, made.vocab)) {
      if (token != again->end_of_text()) val += again->decode(std::vector<Token>{token});
    }
    CHECK(train.size() + val.size() == story(0, 3000).size());
    CHECK(made.train.bytes == static_cast<std::int64_t>(train.size()));
    CHECK(made.val.bytes == static_cast<std::int64_t>(val.size()));
    CHECK_THAT(static_cast<double>(val.size()), WithinRel(0.1 * static_cast<double>(train.size() + val.size()), 0.15));
    CHECK(train.starts_with("line 0:"));
    CHECK(tokens_of(made.train, made.vocab)[0] == again->end_of_text());
  }
}

TEST_CASE("validation stretches lie evenly over a large corpus") {
  const ScratchFolder folder("stretches");
  folder.put("text/a.txt", story(0, 40000));  // about 2.4 MB
  const auto made = prepare({{folder / "text"}, "bytes", 0.1, folder / "out"});
  std::int64_t stretches = 0;
  for (const Token token : tokens_of(made.val, 256)) stretches += token == 0 ? 1 : 0;
  CHECK(stretches == static_cast<std::int64_t>(0.1 * static_cast<double>(story(0, 40000).size()) / 65536.0));
}

TEST_CASE("prepared tokens are reused until something changes") {
  const ScratchFolder folder("reuse");
  const auto text = folder.put("text/a.txt", story(0, 300));
  PrepareOrder order{{folder / "text"}, "bytes", 0.1, folder / "out/"};
  CHECK(!prepare(order).reused);
  CHECK(prepare(order).reused);
  const auto read = read_prepared(folder / "out");
  CHECK(read.train.tokens == prepare(order).train.tokens);

  SECTION("the fraction") { order.val_fraction = 0.2; }
  SECTION("the tokenizer") { order.tokenizer = "bpe:300"; }
  SECTION("the text's size") { folder.put("text/a.txt", story(0, 301)); }
  SECTION("the text's time") { fs::last_write_time(text, fs::last_write_time(text) + std::chrono::seconds(2)); }
  SECTION("another file") { folder.put("text/b.txt", "more\n"); }
  SECTION("a damaged shard") { fs::resize_file(read.train.files[0], 2000); }
  SECTION("missing hashes") { fs::remove(read.train.files[0] + ".xxh3"); }
  SECTION("a missing tokenizer") { fs::remove(read.tokenizer_file); }
  CHECK(!prepare(order).reused);
  CHECK(prepare(order).reused);
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    CHECK_THAT(entry.path().string(), !ContainsSubstring("partial"));
  }
}

TEST_CASE("without a fraction there is no validation split") {
  const ScratchFolder folder("noval");
  folder.put("a.txt", story(0, 10));
  const auto made = prepare({{folder / "a.txt"}, "bytes", 0.0, folder / "out"});
  CHECK(made.val.files.empty());
  CHECK(made.val.tokens == 0);
  CHECK(prepare({{folder / "a.txt"}, "bytes", 0.0, folder / "out"}).reused);
}

TEST_CASE("several sources have the tokens of one, in shards of their own, and validation text of all") {
  const ScratchFolder folder("sources");
  const auto a = folder.put("a.txt", story(0, 2000)), b = folder.put("b/b.txt", story(2000, 700)),
             c = folder.put("b/c.txt", story(2700, 800));
  PrepareOrder order{{a, b, c}, "bpe:400", 0.1, folder / "one"};
  const auto one = prepare(order);
  CHECK(one.train_sources.empty());
  order.folder = folder / "two";
  order.sources = {{{a}, "data.source[0].text"}, {{folder / "b", a}, "data.source[1].text"}};
  const auto two = prepare(order);
  CHECK(two.fingerprint != one.fingerprint);
  CHECK(tokens_of(two.train, two.vocab) == tokens_of(one.train, one.vocab));
  CHECK(tokens_of(two.val, two.vocab) == tokens_of(one.val, one.vocab));
  REQUIRE(two.train_sources.size() == 2);
  const auto text_of = [&](const TokenSplit& split) {
    return make_tokenizer(two.tokenizer_file)->decode(tokens_of(split, two.vocab));
  };
  CHECK_THAT(text_of(two.train_sources[0]), ContainsSubstring("line 7:") && !ContainsSubstring("line 2001:"));
  CHECK_THAT(text_of(two.train_sources[1]), !ContainsSubstring("line 7:") && ContainsSubstring("line 2001:"));
  CHECK(two.train_sources[0].tokens + two.train_sources[1].tokens == two.train.tokens);
  CHECK(two.train_sources[0].bytes + two.train_sources[1].bytes == two.train.bytes);
  CHECK(two.train_sources[0].files.size() + two.train_sources[1].files.size() == two.train.files.size());
  REQUIRE(two.val_sources.size() == 2);
  CHECK_THAT(text_of(two.val_sources[0]), !ContainsSubstring("line 2"));  // 0 to 1999
  CHECK(two.val_sources[0].tokens + two.val_sources[1].tokens == two.val.tokens);
  CHECK(two.val_sources[0].bytes + two.val_sources[1].bytes == two.val.bytes);
  CHECK(tokens_of(two.val_sources[1], two.vocab).back() == tokens_of(one.val, one.vocab).back());
  CHECK(prepare(order).reused);
  CHECK(read_prepared(order.folder).train_sources[1].tokens == two.train_sources[1].tokens);
  CHECK(read_prepared(order.folder).val_sources[1].tokens == two.val_sources[1].tokens);
  order.sources = {{{a, b}, "data.source[0].text"}, {{c}, "data.source[1].text"}};
  CHECK(!prepare(order).reused);
}

TEST_CASE("a source without text of its own is refused by its key") {
  const ScratchFolder folder("empty_source");
  const auto a = folder.put("a/a.txt", story(0, 10));
  PrepareOrder order{{}, "bytes", 0.1, folder / "out"};
  order.sources = {{{folder / "a"}, "data.source[0].text"}, {{a}, "data.source[1].text"}};
  CHECK(thrown_by([&] { prepare(order); }).text ==
        "data.source[1].text: no text in the files and folders given that no earlier source has");
  order.sources[1].paths = {folder / "missing"};
  CHECK(thrown_by([&] { prepare(order); }).text ==
        "data.source[1].text: " + (folder / "missing") + ": no such file or folder");
}

TEST_CASE("byte-order marks and CR LF line ends of the text are counted, kept and said") {
  const ScratchFolder folder("marks");
  folder.put("text/a.txt", "\xEF\xBB\xBFone\r\ntwo\r\nthree\n");
  folder.put("text/b.txt", "plain \xEF\xBB\xBF\n");
  const PrepareOrder order{{folder / "text"}, "bytes", 0.0, folder / "out"};
  for (int i = 0; i < 2; ++i) {  // made at first, then found
    const auto made = prepare(order);
    CHECK(made.byte_order_marks == 1);
    CHECK(made.crlf_line_ends == 2);
    CHECK(notes_on(order, made) ==
          std::vector<std::string>{
              "byte-order marks (1) and CR LF line ends (2) go into the tokens as they are; dos2unix "
              "FILE removes both"});
  }
}

TEST_CASE("a text forges no separator: special tokens that it writes out are ordinary text, counted and said") {
  const ScratchFolder folder("forged");
  folder.put("text.jsonl", "{\"text\": \"one <|endoftext|> two\"}\n{\"text\": \"<|endoftext|><|endoftext|>\"}\n");
  const PrepareOrder order{{folder / "text.jsonl"}, "bpe:300", 0.0, folder / "out"};
  for (int i = 0; i < 2; ++i) {  // made at first, then found
    const auto made = prepare(order);
    CHECK(made.special_tokens == 3);
    REQUIRE(notes_on(order, made).size() == 2);
    CHECK_THAT(notes_on(order, made)[1], ContainsSubstring("special tokens that are written out in the text (3) are "
                                                           "ordinary text and separate nothing"));
    const auto tokenizer = make_tokenizer(made.tokenizer_file);
    const auto tokens = tokens_of(made.train, made.vocab);
    CHECK(std::count(tokens.begin(), tokens.end(), tokenizer->end_of_text()) == 2);
    CHECK(tokenizer->decode(tokens) == "<|endoftext|>one <|endoftext|> two<|endoftext|><|endoftext|><|endoftext|>");
    CHECK(tokenizer->encode("<|endoftext|>") == std::vector{tokenizer->end_of_text()});  // of a prompt it is special
  }
}

TEST_CASE("a file with the size and time of an earlier reading and other bytes is refused") {
  const ScratchFolder folder("sources");
  const std::string text = story(0, 30000);  // more than one block of the hashing
  const std::string path = folder.put("text/b.txt", text);
  folder.put("text/a.txt", "first");
  folder.put("text/c.txt", "third");
  PrepareOrder order{{folder / "text"}, "bytes", 0.0, folder / "cache"};
  std::vector<std::string> said;
  order.say = [&](const std::string& line) { said.push_back(line); };
  const auto first = prepare_in_cache(order);
  CHECK_NOTHROW(require_same_sources(first.folder));
  const auto time = fs::last_write_time(path);
  std::string changed = text;
  changed[changed.size() / 2] ^= 1;
  folder.put("text/b.txt", changed);
  fs::last_write_time(path, time);
  CHECK(prepare_in_cache(order).reused);  // the tokens are those of the whole file
  CHECK_THAT(thrown_by([&] { require_same_sources(first.folder); }).text, ContainsSubstring("it was damaged"));
  order.val_fraction = 0.1;
  CHECK_THAT(thrown_by([&] { prepare_in_cache(order); }).text,
             ContainsSubstring("b.txt: it has the size and the time that it had when tokens were made of it, and other "
                               "bytes"));
  CHECK(said.empty());
  fs::last_write_time(path, time + std::chrono::seconds(1));
  CHECK(!prepare_in_cache(order).reused);
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], ContainsSubstring("b.txt: it has the size of the file of which tokens were made before"));
}

TEST_CASE("a cache has an entry per text, tokenizer and split, made once and never replaced") {
  const ScratchFolder folder("cache");
  folder.put("text/a.txt", story(0, 300));
  PrepareOrder order{{folder / "text"}, "bpe:300", 0.1, folder / "cache"};
  order.say = [](const std::string& line) { FAIL_CHECK(line); };
  const auto first = prepare_in_cache(order);
  CHECK(!first.reused);
  CHECK(prepare_in_cache(order).reused);
  CHECK(prepare_in_cache(order).folder == first.folder);
  SECTION("another text") { folder.put("text/a.txt", story(0, 301)); }
  SECTION("another tokenizer") { order.tokenizer = "bytes"; }
  SECTION("another fraction") { order.val_fraction = 0.2; }
  SECTION("another split") { order.split = "Qwen 2 and 3"; }
  const auto other = prepare_in_cache(order);
  CHECK(!other.reused);
  CHECK(other.folder != first.folder);
  CHECK(fs::exists(first.train.files[0]));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "cache")) names.push_back(entry.path().string());
  CHECK(names.size() == 2);  // no lock and no partial file
}

TEST_CASE("a damaged entry is set aside, and what a killed process left is removed") {
  const ScratchFolder folder("damaged");
  PrepareOrder order{{folder.put("a.txt", story(0, 300))}, "bytes", 0.1, folder / "cache"};
  std::string said;
  order.say = [&](const std::string& line) { said += line; };
  const auto made = prepare_in_cache(order);
  fs::resize_file(made.train.files[0], 2000);
  folder.put("cache/." + made.fingerprint + ".partial.gone.1/train_000000.bin.partial", "half");
  folder.put("cache/.0000000000000000.partial.gone.1/train_000000.bin.partial", "another's");
  CHECK(said.empty());
  CHECK(!prepare_in_cache(order).reused);
  CHECK(said == made.folder + ": damaged; it is now " + made.folder + ".old, and the tokens are made again");
  CHECK(fs::file_size(made.folder + ".old/train_000000.bin") == 2000);
  CHECK(!fs::exists(folder / ("cache/." + made.fingerprint + ".partial.gone.1")));
  CHECK(fs::exists(folder / "cache/.0000000000000000.partial.gone.1"));
}

TEST_CASE("the bytes of the shards depend neither on threads nor on where an earlier process was killed") {
  const ScratchFolder folder("threads");
  std::string lines;
  for (int i = 0; i < 400; ++i)
    lines += R"({"text": ")" + std::string(static_cast<std::size_t>(i % 300), 'a') + " b\"}\n";
  folder.put("text/a.txt", story(0, 3000));
  folder.put("text/b.jsonl", lines);
  folder.put("text/c.txt", story(3000, 500));
  PrepareOrder order{{folder / "text"}, "bpe:400", 0.2, folder / "one"};
  order.shard_tokens = 7000;
  order.threads = 1;
  const auto contents = [&](const PreparedTokens& made) {
    std::map<std::string, std::string> bytes;
    for (const auto& file : fs::directory_iterator(made.folder)) {
      bytes[file.path().filename().string()] = bytes_of(file.path().string());
    }
    return bytes;
  };
  const auto one = prepare(order);
  const auto expected = contents(one);
  CHECK(one.train.files.size() > 5);
  CHECK(one.val.files.size() > 1);
  CHECK(expected.contains("train_000003.bin.documents"));
  order.threads = 3;
  order.folder = folder / "three";
  CHECK(contents(prepare(order)) == expected);

  // What a process that is killed after some batches would leave: a later process goes on behind its shards.
  const std::string partial = folder / "killed.partial";
  order.folder = folder / "killed";
  int kept = 0;
  std::set<std::size_t> found;
  order.progress = [&](std::int64_t /*done*/, std::int64_t /*all*/) {
    fs::copy(partial, folder / ("kept" + std::to_string(kept++)), fs::copy_options::recursive);
  };
  CHECK(contents(prepare(order)) == expected);
  CHECK(kept > 5);
  order.progress = {};
  for (int i = 0; i < kept; ++i) {
    INFO("killed after batch " << i);
    fs::remove_all(order.folder);
    fs::rename(folder / ("kept" + std::to_string(i)), partial);
    std::map<std::string, fs::file_time_type> made;
    for (const auto& file : fs::directory_iterator(partial)) {
      made[file.path().filename().string()] = fs::last_write_time(file.path());
    }
    found.insert(made.size());
    CHECK(contents(prepare(order)) == expected);
    for (const auto& [name, time] : made) {
      if (name.starts_with("train") && name.ends_with(".bin")) {
        CHECK(fs::last_write_time(fs::path(order.folder) / name) == time);
      }
    }
  }
  CHECK(found.size() > 3);
  // Shards of another text are not taken over.
  fs::rename(folder / "one", partial);
  folder.put("killed.partial/progress.json", R"({"fingerprint": "0", "train": [[3, 5]], "val": []})");
  fs::remove_all(order.folder);
  CHECK(contents(prepare(order)) == expected);
}

TEST_CASE("shards record where documents begin") {
  const ScratchFolder folder("documents");
  std::string lines;
  for (int i = 0; i < 100; ++i)
    lines += R"({"text": ")" + std::string(static_cast<std::size_t>(1 + i % 37), 'a') + "\"}\n";
  PrepareOrder order{{folder.put("a.jsonl", lines)}, "bytes", 0.0, folder / "out"};
  order.shard_tokens = 300;
  const auto made = prepare(order);
  CHECK(made.train.files.size() > 3);
  std::int64_t documents = 0;
  for (const auto& file : made.train.files) {
    const TokenShard shard(file, made.vocab);
    std::vector<Token> tokens(static_cast<std::size_t>(shard.num_tokens()));
    shard.read(0, tokens);
    std::vector<std::int64_t> begins;  // a document begins with token 0, and has no other
    for (std::int64_t i = 0; i < shard.num_tokens(); ++i) {
      if (tokens[static_cast<std::size_t>(i)] == 0) begins.push_back(i);
    }
    CHECK(recorded_documents(shard) == begins);
    documents += std::ssize(begins);
  }
  CHECK(documents == 100);
  folder.put("out/train_000001.bin.documents", std::string(16, '\0'));
  CHECK_THAT(thrown_by([&] { recorded_documents(TokenShard(made.train.files[1], made.vocab)); }).text,
             ContainsSubstring("train_000001.bin.documents: not the documents of its shard"));
}

TEST_CASE("the folders above a prepared folder are made") {
  const ScratchFolder folder("parents");
  const auto made = prepare({{folder.put("a.txt", story(0, 10))}, "bytes", 0.0, folder / "not/yet/there"});
  CHECK(fs::exists(folder / "not/yet/there/tokens.json"));
  CHECK(made.train.tokens > 0);
}

TEST_CASE("a cache that cannot be written is refused by its key") {
  const ScratchFolder folder("readonly");
  PrepareOrder order{{folder.put("a.txt", story(0, 10))}, "bytes", 0.1, folder.put("file", "") + "/cache"};
  const auto error = thrown_by([&] { prepare_in_cache(order); });
  CHECK(error.status == 4);
  CHECK_THAT(error.text, ContainsSubstring("data.cache = \"" + order.folder + "\": ") &&
                             ContainsSubstring("give a folder that this user can write"));
}

TEST_CASE("what cannot be prepared is refused, and other people's folders stay") {
  const ScratchFolder folder("refuse");
  const auto text = folder.put("a.txt", story(0, 10));
  folder.put("mine/thesis.tex", "years of work");
  const auto error = thrown_by([&] { prepare({{text}, "bytes", 0.1, folder / "mine"}); });
  CHECK(error.status == 4);
  CHECK_THAT(error.text, ContainsSubstring("mine: holds files that are not prepared tokens; name another folder"));
  CHECK(bytes_of(folder / "mine/thesis.tex") == "years of work");
  CHECK(!fs::exists(folder / "mine/tokens.json"));
  for (const double fraction : {-0.1, 1.0, std::nan("")}) {
    CHECK(thrown_by([&] { prepare({{text}, "bytes", fraction, folder / "out"}); }).status == 2);
  }
  const std::vector<std::pair<std::string, std::string>> descriptions = {
      {"{", "parse error"},
      {"[]", "type"},
      {R"({"format": "x", "version": 1})", "not a description of tokens"},
      {R"({"format": "kozero-tokens", "version": 3, "train": {"files": ["../../etc/passwd"]}})", "leaves the folder"}};
  for (const auto& [json, reason] : descriptions) {
    folder.put("bad/tokens.json", json);
    const auto bad = thrown_by([&] { read_prepared(folder / "bad"); });
    CHECK(bad.status == 3);
    CHECK_THAT(bad.text, ContainsSubstring("tokens.json: ") && ContainsSubstring(reason));
  }
}

}  // namespace kozero::data
