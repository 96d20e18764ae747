// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_chat_shards.cpp: files of conversations become shards with .answers; what is refused; which template is chosen.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include <kozero/data/prepare.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "chat_case.hpp"
#include "src/data/chat_tokens.hpp"

namespace kozero::data {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using tests::all_added_tokens;
using tests::bytes_of;
using tests::Chat;
using tests::chat_tokenizer;
using tests::marked;
using tests::ScratchFolder;
using tests::thrown_by;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

/// A JSON lines file of `count` conversations in the shape "messages".
std::string conversations(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    Json messages = Json::array();
    for (int turn = 0; turn <= i % 3; ++turn) {
      messages.push_back(
          {{"role", "user"}, {"content", "question " + std::string(static_cast<std::size_t>(i % 29), 'q')}});
      messages.push_back(
          {{"role", "assistant"}, {"content", "answer " + std::to_string(i)}, {"weight", turn == 1 ? 0 : 1}});
    }
    lines += Json{{"messages", messages}, {"id", i}}.dump() + "\n";
  }
  return lines;
}

PrepareOrder order_of(const ScratchFolder& folder, const std::string& records, const std::string& chat_template,
                      const std::string& name = "out") {
  PrepareOrder order{{folder.put("a.jsonl", records)},
                     folder.put("tokenizer.json", chat_tokenizer(all_added_tokens())),
                     0.0,
                     folder / name};
  order.rules.chat_template = chat_template;
  return order;
}

/// The conversations of the shards, as Chat has them, each behind its end-of-text.
std::vector<std::string> documents_in(const PreparedTokens& made) {
  const auto tokenizer = io::make_tokenizer(made.tokenizer_file);
  std::vector<Token> all;
  std::vector<TokenRange> answers;
  for (const auto& file : made.train.files) {
    const TokenShard shard(file, made.vocab);
    const auto here = recorded_answers(shard);
    REQUIRE(here);
    const std::int64_t first = std::ssize(all);
    for (const auto& range : *here) {
      const bool continues = !answers.empty() && answers.back().end == range.first + first;
      if (continues) answers.back().end = range.end + first;
      if (!continues) answers.push_back({range.first + first, range.end + first});
    }
    all.resize(all.size() + static_cast<std::size_t>(shard.num_tokens()));
    shard.read(0, std::span(all).subspan(static_cast<std::size_t>(first)));
  }
  std::vector<std::string> documents;
  const std::string text = marked(all, answers, *tokenizer),
                    start = tokenizer->decode(std::vector{tokenizer->end_of_text()});
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = std::min(text.find(start, at + 1), text.size());
    documents.push_back(text.substr(at + start.size(), next - at - start.size()));
    at = next;
  }
  return documents;
}

}  // namespace

TEST_CASE("a bad record of a chat file is named by its row, or counted and left out") {
  const ScratchFolder folder("bad_chat");
  const std::string good = R"({"prompt": "a", "completion": "b"})" + std::string("\n");
  for (const auto& [row, problem] : std::vector<std::pair<std::string, std::string>>{
           {R"({"instruction": "a", "output": "b"})",
            "no \"prompt\" and \"completion\", which the file's first conversation has"},
           {R"({"prompt": "a"})", "no \"prompt\" and \"completion\", which the file's first conversation has"},
           {R"({"prompt": "a", "completion": 7})", "\"completion\" is a JSON number, not text"},
           {"[1]", "not a JSON object"},
           {"{\"prompt\": \"cut", "not JSON from byte 16 of the row on"}}) {
    INFO(row);
    PrepareOrder order = order_of(folder, good + row + "\n" + good, "chatml");
    CHECK_THAT(thrown_by([&] { prepare(order); }).text, ContainsSubstring("a.jsonl: row 2: " + problem));
    order.rules.skip_bad = true;
    const auto made = prepare(order);
    CHECK(made.counts.bad == 1);
    CHECK(made.counts.documents == 2);
  }
  CHECK_THAT(
      thrown_by([&] { prepare(order_of(folder, "{\"text\": \"a\"}\n", "chatml")); }).text,
      EndsWith("JSON lines: row 1 is no conversation; its keys: text; accepted: \"messages\", \"conversations\", "
               "\"prompt\" and \"completion\", \"instruction\" and \"output\""));
  PrepareOrder text = order_of(folder, good, "chatml");
  text.text = {folder.put("a.txt", "some text\n")};
  CHECK_THAT(thrown_by([&] { prepare(text); }).text,
             EndsWith("a.txt: text, not JSON lines of conversations (data.chat_template)"));
}

TEST_CASE("shards have the conversations and their answers, whatever the threads, and after a kill") {
  const ScratchFolder folder("chat_shards");
  PrepareOrder order = order_of(folder, conversations(200), "chatml", "one");
  order.shard_tokens = 997;
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
  CHECK(expected.contains("train_000003.bin.answers"));
  CHECK(one.chat_template == "chatml");
  CHECK(one.counts.documents == 200);

  const Chat chat;
  const auto documents = documents_in(one);
  REQUIRE(documents.size() == 200);
  std::int64_t trained = 0;
  std::string records = conversations(200);
  for (const auto& document : documents) {
    const std::size_t end = records.find('\n');
    CHECK(document == chat("chatml", records.substr(0, end)));
    records.erase(0, end + 1);
  }
  for (const auto& file : one.train.files) {
    const auto answers = recorded_answers(TokenShard(file, one.vocab));
    for (const auto& range : answers.value()) trained += range.end - range.first;
  }
  CHECK(one.train.trained == trained);
  CHECK(read_prepared(one.folder).train.trained == trained);

  order.threads = 3;
  order.folder = folder / "three";
  CHECK(contents(prepare(order)) == expected);
  const std::string partial = folder / "killed.partial";
  order.folder = folder / "killed";
  int kept = 0;
  order.progress = [&](std::int64_t /*done*/, std::int64_t /*all*/) {
    fs::copy(partial, folder / ("kept" + std::to_string(kept++)), fs::copy_options::recursive);
  };
  CHECK(contents(prepare(order)) == expected);
  CHECK(kept > 1);
  order.progress = {};
  for (int i = 0; i < kept; ++i) {
    INFO("killed after batch " << i);
    fs::remove_all(order.folder);
    fs::rename(folder / ("kept" + std::to_string(i)), partial);
    CHECK(contents(prepare(order)) == expected);
  }
}

TEST_CASE("another template or a lost .answers file makes the tokens anew") {
  const ScratchFolder folder("chat_again");
  PrepareOrder order = order_of(folder, conversations(20), "chatml");
  const auto made = prepare(order);
  CHECK(prepare(order).reused);
  fs::remove(made.train.files[0] + ".answers");
  CHECK(!prepare(order).reused);
  CHECK(prepare(order).reused);
  order.rules.chat_template = "qwen3";
  CHECK(!prepare(order).reused);
  const std::string answers = made.train.files[0] + ".answers";
  const TokenShard shard(made.train.files[0], made.vocab);
  const std::string whole = bytes_of(answers);
  for (const std::string& damaged :
       {whole.substr(0, 8), whole.substr(0, 15), std::string(16, '\0'), std::string(16, '\x7f')}) {
    folder.put("out/train_000000.bin.answers", damaged);
    CHECK_THAT(thrown_by([&] { recorded_answers(shard); }).text, ContainsSubstring("not the answers of its shard"));
  }
  fs::remove(answers);
  CHECK(!recorded_answers(shard));
}

TEST_CASE("with Llama 3 the first token of the template is the one that begins the document") {
  const ScratchFolder folder("bos");
  PrepareOrder order = order_of(folder, conversations(3), "llama3");
  Json json = Json::parse(bytes_of(order.tokenizer));
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<|begin_of_text|>"}, {"type_id", 0}}}}}}};
  order.tokenizer = folder.put("llama.json", json.dump());
  const auto made = prepare(order);
  const TokenShard shard(made.train.files.at(0), made.vocab);
  std::vector<Token> tokens(static_cast<std::size_t>(shard.num_tokens()));
  shard.read(0, tokens);
  CHECK(std::ranges::count(tokens, io::make_tokenizer(order.tokenizer)->end_of_text()) == 3);
}

TEST_CASE("tokens of which nothing or everything would be trained are refused") {
  const ScratchFolder folder("share");
  const std::string untrained =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}]})";
  CHECK_THAT(thrown_by([&] { prepare(order_of(folder, untrained + "\n", "chatml")); }).text,
             ContainsSubstring("0 of 24 tokens are trained on, 0 %: no answer has a weight other than 0"));
  CHECK_THAT(thrown_by([] { require_answers(14, 14, "out"); }).text,
             ContainsSubstring("out: 14 of 14 tokens are trained on, 100 %: questions would be learned too"));
  CHECK(thrown_by([] { require_answers(1, 14, "out"); }).text.empty());
  CHECK(thrown_by([] { require_answers(0, 0, "out"); }).text.empty());
}

TEST_CASE("a tokenizer without the template's tokens is refused") {
  const ScratchFolder folder("lacks");
  PrepareOrder order = order_of(folder, conversations(3), "chatml");
  order.tokenizer = folder.put("qwen2.json", chat_tokenizer({"<|im_start|>", "<|im_end|>"}));
  CHECK(thrown_by([&] { prepare(order); }).text.empty());
  order.rules.chat_template = "qwen3";
  CHECK_THAT(thrown_by([&] { prepare(order); }).text,
             ContainsSubstring("data.chat_template = \"qwen3\": the tokenizer bpe:260 has no token <think>"));
  order.tokenizer = "bytes";
  order.rules.chat_template = "llama3";
  CHECK_THAT(thrown_by([&] { prepare(order); }).text, ContainsSubstring("has no token <|begin_of_text|>"));
  order.rules.chat_template = "plain";
  CHECK(thrown_by([&] { prepare(order); }).text.empty());
  order.tokenizer = "bpe:300";
  CHECK(thrown_by([&] { prepare(order); }).text.empty());
}

TEST_CASE("the template of a tokenizer's folder is found by its text, and refused if it is not known") {
  const ScratchFolder folder("auto");
  const std::string tokenizer = folder.put("tokenizer.json", "{}");
  const auto found = [&] { return chat_template_of("auto", tokenizer); };
  CHECK_THAT(thrown_by(found).text, ContainsSubstring("data.chat_template = \"auto\": no template beside") &&
                                        EndsWith("give one of chatml, qwen2, qwen2.5, qwen3, llama3, plain"));
  const std::string chatml =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
      "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  folder.put("tokenizer_config.json", Json{{"chat_template", chatml}}.dump());
  CHECK(found() == "chatml");
  folder.put(
      "tokenizer_config.json",
      Json{{"chat_template", {{{"name", "rag"}, {"template", "x"}}, {{"name", "default"}, {"template", chatml}}}}}
          .dump());
  CHECK(found() == "chatml");
  folder.put("chat_template.jinja", chatml + " ");
  CHECK_THAT(thrown_by(found).text, ContainsSubstring("is not known (XXH3 "));
  folder.put("chat_template.jinja", chatml);
  CHECK(found() == "chatml");
  fs::remove(folder / "chat_template.jinja");
  folder.put("tokenizer_config.json", "{");
  CHECK_THAT(thrown_by(found).text, ContainsSubstring("tokenizer_config.json: "));
  CHECK(chat_template_of("none", "bytes").empty());
  CHECK(chat_template_of("plain", "bytes") == "plain");
  CHECK_THAT(thrown_by([] { chat_template_of("qwen", "bytes"); }).text,
             ContainsSubstring("accepted: none, auto, chatml"));
}

}  // namespace kozero::data
