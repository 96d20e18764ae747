// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_records.cpp: documents of JSON lines, stored and compressed, and of Parquet: all of them, once, in order; what
// is left out is counted; damage is named by file and row.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>
#include <nlohmann/json.hpp>

#include <kozero/data/prepare.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "records_files.hpp"
#include "src/data/document_formats.hpp"

namespace kozero::data {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using tests::bytes_of;
using tests::ScratchFolder;
using tests::thrown_by;

namespace {

using Texts = std::vector<std::string>;

TextSource source_of(const std::string& path, const DocumentRules& rules = {}) { return {{path}, "data.text", rules}; }

/// The documents of the files, each joined from its blocks.
Texts documents_of(const TextSource& source, std::int64_t block_bytes = 64, CorpusPass* pass = nullptr) {
  SkippedFiles skipped;
  const auto reader = FileCorpus(find_text(std::vector{source}, skipped)).read(block_bytes, pass);
  Texts documents;
  for (io::TextBlock block; reader->next(block);) {
    CHECK(!block.text.empty());
    CHECK(std::ssize(block.text) <= block_bytes);
    if (block.starts_document) documents.emplace_back();
    documents.back() += block.text;
  }
  return documents;
}

/// Texts of many lengths, with escapes, line ends and characters of one to four bytes.
Texts some_texts(int count) {
  const Texts parts = {"the quick brown fox", " \"quoted\" \\ ", "line\nline\r\n", "\u00e9\u4e2d\U0001f600", "\ttab "};
  Texts texts;
  for (int i = 0; i < count; ++i) {
    std::string text = "document " + std::to_string(i);
    for (int j = 0; j < i * i % 97; ++j) text += parts[static_cast<std::size_t>(i + j) % parts.size()];
    texts.push_back(text);
  }
  return texts;
}

std::string json_lines(const Texts& texts, bool ascii = true) {
  std::string lines;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const nlohmann::ordered_json row = {
        {"id", i}, {"meta", {{"text", "not this one"}, {"int_score", 9}}}, {"text", texts[i]}, {"int_score", i % 6}};
    lines += row.dump(-1, ' ', ascii) + "\n";
  }
  return lines;
}

std::string error_of(const TextSource& source) {
  return thrown_by([&] { documents_of(source); }).text;
}

}  // namespace

TEST_CASE("JSON lines are documents in order, stored, gzip or zstd, whatever the block size") {
  const ScratchFolder folder("records");
  const Texts texts = some_texts(60);
  const std::string lines = json_lines(texts);
  const std::string utf8 = json_lines(texts, false);
  const std::size_t half = lines.find('\n', lines.size() / 2) + 1;
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"a.jsonl", lines},
           {"b.jsonl", "\n" + utf8.substr(0, utf8.size() - 1)},  // a blank line, and no end of the last one
           {"c.jsonl.gz", tests::gzipped(lines)},
           {"d.jsonl.gz", tests::gzipped(lines.substr(0, half)) + tests::gzipped(lines.substr(half))},
           {"e.jsonl.zst", tests::zstd_frame(lines)},
           {"f.ndjson.zst", tests::zstd_frame(lines.substr(0, half)) + tests::zstd_frame(lines.substr(half))},
           {"named.txt", lines},
           {"named.gz", tests::gzipped(lines)}}) {
    INFO(name);
    const std::string path = folder.put(name, bytes);
    CHECK(documents_of(source_of(path)) == texts);
    CHECK(documents_of(source_of(path), 8) == texts);
    CHECK(documents_of(source_of(path), 1 << 20) == texts);
  }
}

TEST_CASE("a filter, empty texts and duplicates leave records out, and are counted") {
  const ScratchFolder folder("filter");
  Texts texts = some_texts(30);
  texts[7] = texts[1];   // int_score 1 and 1
  texts[14] = texts[1];  // 2
  texts[8] = "";         // 2
  const std::string path = folder.put("a.jsonl", json_lines(texts));
  const auto kept = [&](const std::string& filter) {
    return documents_of(source_of(path, {.filter = parse_filter(filter, "data.filter")})).size();
  };
  CHECK(kept("") == 29);
  CHECK(kept("int_score >= 3") == 15);
  CHECK(kept("int_score<2") == 10);
  CHECK(kept("int_score == 2 ") == 4);
  CHECK(kept("int_score!=2") == 25);
  CHECK(kept("int_score <= -1e-3") == 0);
  CHECK(kept("int_score > 4.5") == 5);

  CorpusPass pass;
  pass.deduplicate = true;
  folder.put("b.txt", texts[3]);
  const auto all = documents_of(source_of(folder.path(), {.filter = parse_filter("int_score >= 1", "k")}), 64, &pass);
  CHECK(all.size() == 22);  // 25 with int_score >= 1, less 8 (empty), 7 and 14
  CHECK(listed(pass.counts) == "left out records: 5 filtered, 2 duplicate, 1 empty");
  // A plain text that equals a record is a duplicate too.
  CorpusPass with_text;
  with_text.deduplicate = true;
  CHECK(documents_of(source_of(folder.path()), 64, &with_text).size() == 27);
  CHECK(with_text.counts.duplicates == 3);

  for (const char* wrong : {"int_score", "int_score >= ", ">= 3", "int_score >= x", "int_score => 3", "a >= inf"}) {
    const auto error = thrown_by([&] { parse_filter(wrong, "data.filter"); });
    CHECK(error.status == 2);
    CHECK_THAT(error.text, ContainsSubstring("accepted: COLUMN SIGN NUMBER"));
  }
}

TEST_CASE("a record that is no document is named by file and row, or counted and left out") {
  const ScratchFolder folder("bad");
  const auto with = [&](const std::string& row) {
    return folder.put("a.jsonl", "{\"text\": \"one\"}\n" + row + "\n{\"text\": \"three\"}\n");
  };
  for (const auto& [row, problem] : std::vector<std::pair<std::string, std::string>>{
           {"{\"text\": \"cut", "not JSON from byte 14 of the row on"},
           {"{\"text\": \"\xff\"}", "not UTF-8 at byte 11 of the row"},
           {"{\"text\": \"\\ud800\"}", "a lone surrogate, half of a character, at byte 17 of the row"},
           {"{\"text\": \"a\", \"score\": NaN}", "NaN at byte 24 of the row is not JSON; null is"},
           {"{\"text\": \"a\", \"score\": -Infinity}", "Infinity at byte 25 of the row is not JSON; null is"},
           {"{\"text\": \"a\", \"score\": 1e400}", "a number that is too large, at byte 28 of the row"},
           {"{\"text\": \"a\", \"text\": \"b\"}", "the key \"text\" twice"},
           {"[\"text\"]", "not a JSON object"},
           {"7", "not a JSON object"},
           {"{\"content\": \"x\", \"id\": 3}", "no field \"text\" (data.text_field); its keys: content, id"},
           {"{\"text\": [\"x\"]}", "\"text\" is a list, not text"},
           {"{\"text\": {\"text\": \"x\"}}", "\"text\" is an object, not text"},
           {"{\"text\": 5}", "\"text\" is a number, not text"},
           {"{\"text\": null}", "\"text\" is null, not text"}}) {
    INFO(row);
    const std::string path = with(row);
    CHECK(error_of(source_of(path)) == "data.text: " + path + ": row 2: " + problem +
                                           "; to leave such records out: data.on_bad_document=skip (prepare: "
                                           "--skip-bad)");
    CorpusPass pass;
    CHECK(documents_of(source_of(path, {.skip_bad = true}), 64, &pass) == Texts{"one", "three"});
    CHECK(pass.counts.bad == 1);
    CHECK(pass.counts.bad_places == Texts{path + ": row 2: " + problem});
  }
  const auto filtered = DocumentRules{.filter = parse_filter("score > 1", "data.filter")};
  const std::string some = folder.put("some.jsonl", "{\"text\": \"a\", \"score\": 2}\n{\"text\": \"b\"}\n");
  CHECK_THAT(error_of(source_of(some, filtered)), ContainsSubstring("row 2: no number \"score\" (data.filter)"));
  // What no record has is a mistake in the deck, and skipping records does not hide it.
  for (const bool skip : {false, true}) {
    const std::string path = with("{}");
    CHECK_THAT(error_of(source_of(path, {.text_field = "content", .skip_bad = skip})),
               EndsWith("JSON lines: row 1 has no field \"content\"; its keys: text; set data.text_field"));
  }
}

TEST_CASE("a NUL in a text is bad if it would be the end-of-text token") {
  const ScratchFolder folder("nul");
  const std::string path = folder.put("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"a\\u0000b\"}\n");
  CHECK(documents_of(source_of(path)).size() == 2);
  CorpusPass pass;
  pass.refuses_nul = true;
  CHECK_THAT(thrown_by([&] { documents_of(source_of(path), 64, &pass); }).text,
             ContainsSubstring("a.jsonl: row 2: the text has a NUL, which is the end-of-text token of data.tokenizer"));
  CHECK(documents_of(source_of(path, {.skip_bad = true}), 64, &pass) == Texts{"one"});
  CHECK(pass.counts.bad == 1);
  std::string late = std::string(20000, 'x') + std::string(1, '\0') + "y";
  const std::string plain = folder.put("a.txt", late);
  CHECK(documents_of(source_of(plain)).size() == 1);
  CHECK_THAT(thrown_by([&] { documents_of(source_of(plain), 64, &pass); }).text,
             ContainsSubstring("a.txt: byte 20000 is a NUL, which is the end-of-text token"));
}

TEST_CASE("integers of 64 bits are compared exactly") {
  const ScratchFolder folder("exact");
  const std::string path = folder.put("a.jsonl",
                                      "{\"text\": \"a\", \"n\": 9007199254740993}\n"
                                      "{\"text\": \"b\", \"n\": 9007199254740992}\n"
                                      "{\"text\": \"c\", \"n\": 18446744073709551615}\n");
  const auto kept = [&](const std::string& filter) {
    return documents_of(source_of(path, {.filter = parse_filter(filter, "k")}));
  };
  CHECK(kept("n > 9007199254740992") == Texts{"a", "c"});
  CHECK(kept("n <= 9007199254740992") == Texts{"b"});
  for (const char* sign : {"<", "<=", "==", "!=", ">=", ">"}) {  // a column of Parquet may have NaN
    CHECK_FALSE(parse_filter(std::string("n ") + sign + " 3", "k").keeps(std::nanl("")));
  }
}

TEST_CASE("a conversation of too many values, or with a key twice, is bad") {
  const ScratchFolder folder("values");
  const std::string turns = R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  std::string deep;
  for (int i = 0; i < 200'000; ++i) deep += "{\"a\":";
  DocumentRules chat;
  chat.chat_template = "plain";
  const auto error = [&](const std::string& more) {
    return error_of(source_of(folder.put("a.jsonl", "{" + turns + "}\n{" + turns + ", " + more + "}\n"), chat));
  };
  CHECK_THAT(error("\"x\": " + deep + "1" + std::string(200'000, '}')),
             ContainsSubstring("row 2: more than 200000 keys and values"));
  CHECK_THAT(error(turns), ContainsSubstring("row 2: the key \"messages\" twice"));
  CHECK_THAT(error("\"x\": {\"y\": 1, \"y\": 2}"), ContainsSubstring("row 2: the key \"y\" twice"));
}

TEST_CASE("a compressed file that is cut or changed is named with the byte, or counted and left out") {
  const ScratchFolder folder("cut");
  const Texts texts = some_texts(400);
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"a.jsonl.gz", tests::gzipped(json_lines(texts))}, {"a.jsonl.zst", tests::zstd_frame(json_lines(texts))}}) {
    INFO(name);
    const std::size_t cut = bytes.size() * 3 / 4;
    const std::string path = folder.put(name, bytes.substr(0, cut));
    CHECK_THAT(error_of(source_of(path)),
               ContainsSubstring("the file ends too early, after byte " + std::to_string(cut)));
    CorpusPass pass;
    const Texts first = documents_of(source_of(path, {.skip_bad = true}), 64, &pass);
    CHECK(pass.counts.bad == 1);
    CHECK(first.size() > 100);
    CHECK(std::equal(first.begin(), first.end(), texts.begin()));
    CorpusPass twice;  // asked again behind the damage, a reader counts no more
    SkippedFiles skipped;
    const FileCorpus corpus(find_text(std::vector{source_of(path, {.skip_bad = true})}, skipped));
    const auto reader = corpus.read(64, &twice);
    io::TextBlock block;
    while (reader->next(block)) {
    }
    CHECK_FALSE(reader->next(block));
    CHECK(twice.counts.bad == 1);
    std::string changed = bytes;
    changed[30] = static_cast<char>(changed[30] ^ 0x10);
    CHECK_THAT(error_of(source_of(folder.put(name, changed))), ContainsSubstring(folder / name));
    CHECK_THAT(error_of(source_of(folder.put(name, bytes.substr(0, 20)))), ContainsSubstring("ends too early"));
  }
}

TEST_CASE("text that gzip's checksum does not fit is refused at its end") {
  const ScratchFolder folder("checksum");
  std::string bytes = tests::gzipped(json_lines(some_texts(40)));
  constexpr std::size_t kBehindChecksum = 4;
  bytes[bytes.size() - kBehindChecksum - 1] ^= 1;
  CHECK_THAT(error_of(source_of(folder.put("a.jsonl.gz", bytes))),
             ContainsSubstring("gzip: damaged (incorrect data check) at byte "));
}

TEST_CASE("zeros behind a gzip file are no part of it, other bytes are an error") {
  const ScratchFolder folder("padding");
  const Texts texts = some_texts(40);
  const std::string bytes = tests::gzipped(json_lines(texts));
  for (const std::size_t zeros : {1, 511, 200000}) {
    CHECK(documents_of(source_of(folder.put("a.jsonl.gz", bytes + std::string(zeros, '\0')))) == texts);
  }
  CHECK(documents_of(source_of(folder.put("a.jsonl.gz", bytes + bytes))).size() == 80);
  for (const auto& behind : {std::string("garbage"), std::string(100, '\0') + "x"}) {
    CHECK_THAT(error_of(source_of(folder.put("a.jsonl.gz", bytes + behind))),
               ContainsSubstring("gzip: behind the last member there is something else; to leave it out: gunzip -c"));
  }
}

TEST_CASE("patterns give their matches in order, and a record keeps its side of the split when the corpus grows") {
  const ScratchFolder folder("grows");
  const Texts texts = some_texts(500);
  const Texts first(texts.begin(), texts.begin() + 300);
  const Texts second(texts.begin() + 300, texts.end());
  folder.put("in/a.jsonl", json_lines(first));
  const auto made = [&](const std::string& name) {
    const auto tokens = prepare({{folder / "in/*.jsonl"}, "bytes", 0.1, folder / name});
    CHECK(tokens.val.bytes > 0);
    return tokens;
  };
  const auto before = made("before");
  folder.put("in/b.jsonl", json_lines(second));
  folder.put("in/c.txt", "not matched");
  const auto after = made("after");
  CHECK(after.counts.documents == 500);
  constexpr std::size_t kHeader = 1024;
  for (const auto& [small, large] : {std::pair(before.train, after.train), std::pair(before.val, after.val)}) {
    const std::string old = bytes_of(small.files.at(0)).substr(kHeader);
    CHECK(bytes_of(large.files.at(0)).substr(kHeader, old.size()) == old);
  }
  CHECK_THAT(thrown_by([&] { find_text({folder / "in/*.gz"}); }).text,
             ContainsSubstring("no such file or folder, and none that matches"));
}

TEST_CASE("a corpus without a document is refused") {
  const ScratchFolder folder("none");
  const std::string blank = folder.put("blank.jsonl", "\n\n{\"text\": \"\"}\n");
  CHECK(thrown_by([&] {
          prepare({{blank}, "bytes", 0.1, folder / "out"});
        }).text == "data.text: no document; left out records: 1 empty");
}

#ifdef KOZERO_HAS_PARQUET
TEST_CASE("a Parquet file's text column gives its documents, row group by row group") {
  const ScratchFolder folder("parquet");
  const Texts texts = some_texts(250);
  const std::string path = folder / "a.parquet";
  tests::write_parquet(path, texts, 100);
  CHECK(documents_of(source_of(path)) == texts);
  CHECK(documents_of(source_of(path), 1 << 20) == texts);
  CHECK(documents_of(source_of(path, {.filter = parse_filter("int_score >= 3", "k")})).size() == 124);
  CHECK(documents_of(source_of(path, {.filter = parse_filter("score < 0.25", "k")})).size() == 50);
  CHECK_THAT(error_of(source_of(path, {.text_field = "content"})),
             ContainsSubstring("Parquet: no column \"content\"; its columns: text, id, score, int_score, tags, kind, "
                               "doc; set data.text_field"));
  CHECK_THAT(error_of(source_of(path, {.text_field = "tags"})), ContainsSubstring("not text"));
  CHECK_THAT(error_of(source_of(path, {.filter = parse_filter("id > 2", "k")})),
             ContainsSubstring("column \"id\" (data.filter) has string, not numbers"));
  Texts kinds;
  for (std::size_t i = 0; i < texts.size(); ++i) kinds.push_back(i % 2 == 0 ? "even" : "odd");
  CHECK(documents_of(source_of(path, {.text_field = "kind"})) == kinds);
  CHECK(documents_of(source_of(path, {.text_field = "doc.body"})) == texts);
  CHECK_THAT(error_of(source_of(path, {.text_field = "doc"})),
             ContainsSubstring("not text; a field of it is named doc.FIELD"));
}

TEST_CASE("a page takes no more memory than its column has, whatever its header declares") {
  const ScratchFolder folder("page");
  const std::string whole = folder / "whole.parquet";
  tests::write_parquet(whole, some_texts(250), 100);
  std::string bytes = bytes_of(whole);
  // The header of the first page, in Thrift's compact form: type, size unpacked, size stored. The sizes become 2^31
  // - 1.
  std::size_t at = 6;
  for (int size = 0; size < 2; ++size) {
    REQUIRE(bytes[at] == 0x15);
    std::size_t end = ++at;
    while ((static_cast<unsigned char>(bytes[end]) & 0x80U) != 0) ++end;
    bytes.replace(at, end + 1 - at, "\xFE\xFF\xFF\xFF\x0F");
    at += 5;
  }
  CHECK_THAT(error_of(source_of(folder.put("large.parquet", bytes))),
             ContainsSubstring("row group 1, behind row 0: Parquet: ") &&
                 ContainsSubstring("a page declares 2.0 GiB, and its column has at most 64.0 MiB"));
}

TEST_CASE("a Parquet row that is no document is named by its number in the file") {
  const ScratchFolder folder("row");
  Texts texts = some_texts(250);
  texts[207] = "\xFF";  // in the third row group
  const std::string path = folder / "a.parquet";
  tests::write_parquet(path, texts, 100);
  CHECK_THAT(error_of(source_of(path)), ContainsSubstring(path + ": row 208: not UTF-8: byte 0 is 0xFF of the text"));
}

TEST_CASE("damaged Parquet files are named with the row group, or counted and left out") {
  const ScratchFolder folder("damaged");
  const Texts texts = some_texts(250);
  const std::string whole = folder / "whole.parquet";
  tests::write_parquet(whole, texts, 100);
  const std::string bytes = bytes_of(whole);
  const std::string cut = folder.put("cut.parquet", bytes.substr(0, bytes.size() / 2));
  CHECK_THAT(error_of(source_of(cut)), ContainsSubstring("cut.parquet: Parquet: ") && ContainsSubstring("footer"));
  CorpusPass pass;
  CHECK(documents_of(source_of(cut, {.skip_bad = true}), 64, &pass).empty());
  CHECK(pass.counts.bad == 1);
  std::string changed = bytes;
  for (std::size_t i = 500; i < 800; ++i) {  // in the text's first pages
    changed[i] = static_cast<char>(changed[i] ^ 0x55);
  }
  CHECK_THAT(error_of(source_of(folder.put("changed.parquet", changed))), ContainsSubstring("row group "));
}
#endif

}  // namespace kozero::data
