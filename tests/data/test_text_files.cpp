// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_text_files.cpp: the files of a corpus, why other files are refused, and the blocks in which text is read.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>

#include <kozero/data/text_files.hpp>
#include <kozero/data/token_shard.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "src/data/document_formats.hpp"
#include "src/data/json_files.hpp"

namespace kozero::data {

using io::TextBlock;
using tests::bytes_of;
using tests::ScratchFolder;
using tests::thrown_by;
namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

std::vector<std::string> names_below(const ScratchFolder& folder, const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const auto& file : find_text(paths)) names.push_back(fs::relative(file.path, folder.path()).generic_string());
  return names;
}

std::string read_all(const std::vector<TextFile>& files, std::int64_t block_bytes) {
  const auto reader = FileCorpus(files).read(block_bytes);
  std::string all;
  for (TextBlock block; reader->next(block);) {
    CHECK(!block.text.empty());
    CHECK(static_cast<std::int64_t>(block.text.size()) <= block_bytes);
    CHECK(block.offset == static_cast<std::int64_t>(all.size()));
    all += block.text;
  }
  return all;
}

std::string shard_bytes(const ScratchFolder& folder, std::int64_t vocab) {
  const std::string path = folder / "shard.bin";
  TokenShardWriter writer(path, vocab);
  writer.append(std::vector<Token>{1, 2, 3});
  writer.close();
  return bytes_of(path);
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
  for (auto& each : skipped.named) each.erase(0, folder.path().size() + 1);
  CHECK(skipped.unnamed == 6);  // .git, .hidden, node_modules, empty.txt, a/__pycache__ (twice, since "a" is given too)
  CHECK(skipped.named == std::vector<std::string>{"A.txt (a link)", "image.png (binary)", "late.bin (binary)",
                                                  "loop (a link)", "out (a build, run or token folder)",
                                                  "prepared (a build, run or token folder)",
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
  CHECK_THAT(error_of(binary).text,
             ContainsSubstring("x.bin: not text: it holds a NUL byte; accepted: UTF-8 text, JSON lines "));
  CHECK_THAT(error_of(folder / "void").text, ContainsSubstring("no text in the files and folders given"));
}

TEST_CASE("other formats are known by their first bytes, refused by name with what to do, and skipped in folders") {
  using namespace std::string_literals;
  const ScratchFolder folder("formats");
  struct Case {
    std::string name, bytes, reason, remedy;
  };
  const std::vector<Case> cases = {
      {"a.tar", std::string(257, 'a') + "ustar\0"s, "tar", "unpack it: tar -xf FILE"},
      {"d.zip", "PK\3\4\x14\0"s, "ZIP, as .docx, .epub and .pt files are", "unpack it: unzip FILE"},
      {"e.bz2", "BZh91AY&SY\xA2\xE1"s, "bzip2", "unpack it: bunzip2 -k FILE"},
      {"f.xz", "\xFD\x37zXZ\0\0"s, "xz", "unpack it: unxz -k FILE"},
      {"g.h5", "\x89HDF\r\n\x1A\n\0"s, "HDF5", "write its texts to a text file"},
      {"h.safetensors", "\x40\0\0\0\0\0\0\0{\"a\""s, "safetensors weights", "weights are given as model.init"},
      {"i.pdf", "%PDF-1.7\n", "PDF", "extract its text: pdftotext FILE"},
      {"j.bin", shard_bytes(folder, 256), "token shard", "give it as data.tokens, with data.tokenizer"},
      {"j2.bin", shard_bytes(folder, 100000), "token shard", "give it as data.tokens, with data.tokenizer"},
      {"k.txt", "\xFF\xFEh\0i\0"s, "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE >NEW"}};
  std::vector<std::string> all;
  for (const auto& [name, bytes, reason, remedy] : cases) {
    const std::string path = folder.put("data/" + name, bytes);
    CHECK(thrown_by([&] { find_text({path}); }).text ==
          "data.text: " + path + ": " + reason + "; accepted: UTF-8 text, JSON lines (also .gz, .zst), Parquet; " +
              remedy);
    all.push_back(path + " (" + reason + ")");
  }
  CHECK(thrown_by([&] { find_text({folder / "data"}); }).text ==
        "data.text: no text in the files and folders given; skipped " + all[0] + ", " + all[1] + ", " + all[2] + ", " +
            all[3] + ", " + all[4] + ", 5 more");
  folder.put("data/text.txt", "text");
  folder.put("data/.hidden", "text");
  SkippedFiles skipped;
  CHECK(find_text({folder / "data"}, skipped).size() == 1);
  CHECK(skipped.named == all);
  CHECK(listed(skipped).ends_with(", 5 more, 1 hidden or empty"));
  // These are text too: code in braces, a citation, words with which other formats begin.
  for (const char* text : {"{ x }\n{ y }\n", "[1] Smith\n", "{{ name }}", "PAR1 is a magic number", "BZh91AY&SY"}) {
    CHECK(find_text({folder.put("plain.txt", text)}).size() == 1);
  }
}

TEST_CASE("JSON is read as lines of objects, or refused with what to do, whatever its name") {
  const ScratchFolder folder("json");
  const std::string one = R"({"text": "one"})", two = R"({"text": "two"})";
  const std::string mark = "\xEF\xBB\xBF";
  const std::string large = R"({"text": ")" + std::string(20000, 'x') + "\"}";
  for (const char* name : {"a.json", "a.jsonl", "a.txt", "a"}) {
    for (const auto& bytes : {one, one + "\n", mark + one + "\n" + two, "\n\n" + one + "\r\n" + two + "\n", large,
                              large + "\n" + one + "\n", mark + "\n" + one}) {
      INFO(name << ": " << bytes.substr(0, 60));
      const auto files = find_text({folder.put(name, bytes)});
      CorpusPass pass;
      const auto reader = FileCorpus(files).read(1 << 20, &pass);
      TextBlock block;
      REQUIRE(reader->next(block));
      CHECK((block.text == "one" || block.text == std::string(20000, 'x')));
      CHECK(pass.counts.unnamed_json == (is_named_json(name) ? 0 : 1));
    }
    for (const auto& [bytes, refusal] : std::vector<std::pair<std::string, std::string>>{
             {"{\n  \"text\": \"one\"\n}\n",
              "a JSON object over several lines; accepted: UTF-8 text, JSON lines (also "
              ".gz, .zst), Parquet; write JSON lines: jq -c . FILE >NEW.jsonl"},
             {R"(["a text", "another"])", "jq -c '.[] | {text: .}' FILE >NEW.jsonl"},
             {"[" + one + ",\n " + two + "]", "a JSON array of objects; "},
             {mark + "[\n" + large + ",\n" + large + "]", "a JSON array of objects; "},
             {one + "\r" + two + "\r", "JSON lines that end in CR alone; "}}) {
      INFO(name << ": " << bytes.substr(0, 60));
      const std::string path = folder.put(name, bytes);
      CHECK_THAT(thrown_by([&] { find_text({path}); }).text,
                 StartsWith("data.text: " + path + ": ") && ContainsSubstring(refusal));
    }
  }
  for (const char* bytes : {"{ x }\n", "3", "\"a text\"", "[1, 2"}) {
    CHECK_THAT(thrown_by([&] { find_text({folder.put("b.json", bytes)}); }).text,
               ContainsSubstring("named .json, but not JSON lines; "));
  }
  CHECK(find_text({folder.put("b.json", "prose")}).size() == 1);
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
  CHECK(skipped.named == std::vector<std::string>{latin + " (not UTF-8: byte 3 is 0xE9)"});
  // A character cut by the end of the first 8 KiB is no bad byte. A bad byte after them is found when it is read.
  const auto late = folder.put("late.txt", std::string(8191, 'x') + "\xC3\xA9 " + std::string(100, 'y') + "\xFF");
  const auto reader = FileCorpus(find_text({good, late})).read(64);
  const auto thrown = thrown_by([&] {
    for (TextBlock block; reader->next(block);) {
    }
  });
  CHECK(thrown.status == 3);
  CHECK(thrown.text == refusal(late, "8294 is 0xFF"));
  // The error names the key of the source that has the file.
  const std::vector<TextSource> sources = {{{good}, "data.source[0].text"}, {{late}, "data.source[1].text"}};
  const auto of_source = FileCorpus(find_text(sources, skipped)).read(64);
  const auto named = thrown_by([&] {
    for (TextBlock block; of_source->next(block);) {
    }
  });
  CHECK_THAT(named.text, StartsWith("data.source[1].text: " + late + ": not UTF-8: byte 8294"));
}

TEST_CASE("blocks of any size give the corpus, documents marked") {
  const ScratchFolder folder("blocks");
  std::string one, two;
  for (int i = 0; i < 300; ++i) one += "word" + std::to_string(i) + (i % 7 == 0 ? "\n" : " ");
  for (int i = 0; i < 200; ++i) two += "\xE4\xBD\xA0\xE5\xA5\xBD";
  const auto files = find_text({folder.put("1.txt", one), folder.put("2.txt", two), folder.put("3.txt", "x")});
  CHECK(total_bytes(files) == static_cast<std::int64_t>(one.size() + two.size() + 1));
  for (const std::int64_t block : {8, 13, 64, 1000, 100000}) CHECK(read_all(files, block) == one + two + "x");

  const auto reader = FileCorpus(files).read(64);
  int documents = 0;
  for (TextBlock block; reader->next(block);) documents += block.starts_document ? 1 : 0;
  CHECK(documents == 3);
}

TEST_CASE("a block ends before white space behind a word, else between characters") {
  const ScratchFolder folder("cut");
  const auto words = FileCorpus(find_text({folder.put("w.txt", "alpha beta  gamma delta")})).read(12);
  TextBlock block;
  REQUIRE(words->next(block));
  CHECK(block.text == "alpha beta");
  REQUIRE(words->next(block));
  CHECK(block.text == "  gamma");
  const auto wide =
      FileCorpus(find_text({folder.put("u.txt", "\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xBD\xA0\xE5\xA5\xBD")})).read(8);
  REQUIRE(wide->next(block));
  CHECK(block.text == "\xE4\xBD\xA0\xE5\xA5\xBD");
}

}  // namespace kozero::data
