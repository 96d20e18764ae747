// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>

#include "io/text/text_source.hpp"

#include "scratch_folder.hpp"
#include "thrown.hpp"

namespace kozero::io {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

namespace {

std::vector<std::string> names_below(const ScratchFolder& folder, const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const auto& file : find_text(paths)) names.push_back(fs::relative(file.path, folder.path()).generic_string());
  return names;
}

std::string read_all(const std::vector<TextFile>& files, std::int64_t block_bytes) {
  TextReader reader(files, block_bytes);
  std::string all;
  for (TextBlock block; reader.next(block);) {
    CHECK(!block.text.empty());
    CHECK(static_cast<std::int64_t>(block.text.size()) <= block_bytes);
    CHECK(block.offset == static_cast<std::int64_t>(all.size()));
    all += block.text;
  }
  return all;
}

}  // namespace

TEST_CASE("a folder gives its text files, sorted, without what is not a corpus") {
  const ScratchFolder folder("corpus");
  for (const char* name : {"b.txt", "a/z.md", "a/b/c.cpp", "Z.txt", "long.txt"}) folder.put(name, "text\n");
  for (const char* name : {".git/config", ".hidden", "node_modules/x.js", "out/CMakeCache.txt", "out/x.txt",
                           "run/metrics.jsonl", "run/log.txt", "prepared/tokens.json", "a/__pycache__/x.txt"}) {
    folder.put(name, "not for training\n");
  }
  folder.put("image.png", std::string("\x89PNG\0\0", 6));
  folder.put("late.bin", std::string(8191, 'x') + std::string(1, '\0'));
  folder.put("empty.txt", "");
  fs::create_symlink(folder.path(), folder / "loop");
  fs::create_symlink(folder / "b.txt", folder / "A.txt");
  const std::vector<std::string> expected = {"Z.txt", "a/b/c.cpp", "a/z.md", "b.txt", "long.txt"};
  CHECK(names_below(folder, {folder.path()}) == expected);
  SkippedFiles skipped;
  CHECK(find_text({folder.path(), folder / "a"}, skipped).size() == expected.size());
  for (auto& each : skipped) each.erase(0, folder.path().size() + 1);
  CHECK(skipped == SkippedFiles{"A.txt (a link)", "image.png (binary)", "late.bin (binary)", "loop (a link)",
                                "out (a build, run or token folder)", "prepared (a build, run or token folder)",
                                "run (a build, run or token folder)"});
  CHECK(names_below(folder, {folder / "b.txt", folder.path(), folder / "a"}) ==
        std::vector<std::string>{"b.txt", "Z.txt", "a/b/c.cpp", "a/z.md", "long.txt"});
}

TEST_CASE("a missing, binary or empty corpus is refused by name") {
  const ScratchFolder folder("nocorpus");
  fs::create_directories(folder / "void");
  const auto binary = folder.put("x.bin", std::string("ab\0cd", 5));
  const auto error_of = [&](const std::string& path) { return thrown_by([&] { find_text({path}); }); };
  CHECK(error_of(folder / "none").status == 3);
  CHECK_THAT(error_of(folder / "none").text,
             ContainsSubstring("data.text: ") && ContainsSubstring("/none: no such file or folder"));
  CHECK_THAT(error_of(binary).text, ContainsSubstring("x.bin: not text: it holds a NUL byte"));
  CHECK_THAT(error_of(folder / "void").text, ContainsSubstring("no text in the files and folders given"));
}

TEST_CASE("text that is not UTF-8 is refused with file and byte, or skipped in a folder") {
  const ScratchFolder folder("latin");
  const auto refusal = [](const std::string& path, const std::string& byte) {
    return "data.text: " + path + ": not UTF-8: byte " + byte +
           "; convert it, for example: iconv -f LATIN1 -t UTF-8 FILE >NEW";
  };
  const auto latin = folder.put("latin.txt", "caf\xE9 au lait");
  CHECK(thrown_by([&] { find_text({latin}); }).text == refusal(latin, "3 is 0xE9"));
  const auto good = folder.put("good.txt", "caf\xC3\xA9");
  SkippedFiles skipped;
  CHECK(find_text({folder.path()}, skipped).size() == 1);
  CHECK(skipped == SkippedFiles{latin + " (not UTF-8: byte 3 is 0xE9)"});
  // A character that the first 8 KiB cut is none of it; a bad byte behind them is found when it is read.
  const auto late = folder.put("late.txt", std::string(8191, 'x') + "\xC3\xA9 " + std::string(100, 'y') + "\xFF");
  TextReader reader(find_text({good, late}), 64);
  const auto thrown = thrown_by([&] {
    for (TextBlock block; reader.next(block);) {
    }
  });
  CHECK(thrown.status == 3);
  CHECK(thrown.text == refusal(late, "8294 is 0xFF"));
}

TEST_CASE("blocks of any size give the corpus, documents marked") {
  const ScratchFolder folder("blocks");
  std::string one, two;
  for (int i = 0; i < 300; ++i) one += "word" + std::to_string(i) + (i % 7 == 0 ? "\n" : " ");
  for (int i = 0; i < 200; ++i) two += "\xE4\xBD\xA0\xE5\xA5\xBD";
  const auto files = find_text({folder.put("1.txt", one), folder.put("2.txt", two), folder.put("3.txt", "x")});
  CHECK(total_bytes(files) == static_cast<std::int64_t>(one.size() + two.size() + 1));
  for (const std::int64_t block : {8, 13, 64, 1000, 100000}) CHECK(read_all(files, block) == one + two + "x");

  TextReader reader(files, 64);
  int documents = 0;
  for (TextBlock block; reader.next(block);) documents += block.starts_document ? 1 : 0;
  CHECK(documents == 3);
}

TEST_CASE("a block ends before white space behind a word, else between characters") {
  const ScratchFolder folder("cut");
  TextReader words(find_text({folder.put("w.txt", "alpha beta  gamma delta")}), 12);
  TextBlock block;
  REQUIRE(words.next(block));
  CHECK(block.text == "alpha beta");
  REQUIRE(words.next(block));
  CHECK(block.text == "  gamma");
  TextReader wide(find_text({folder.put("u.txt", "\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xBD\xA0\xE5\xA5\xBD")}), 8);
  REQUIRE(wide.next(block));
  CHECK(block.text == "\xE4\xBD\xA0\xE5\xA5\xBD");
}

}  // namespace kozero::io
