// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_tuning_file.cpp: a tuning file reads back as it was written; a damaged one is rejected with the reason.
#include <catch2/catch_test_macros.hpp>

#include <support/thrown.hpp>
#include "io/deck/tuning_file.hpp"

using namespace kozero::io;
using namespace kozero::tests;

namespace {

TuningFile of_a_host() {
  return {"A processor \"x\"",
          "oneDNN 2.6.0",
          2,
          {{"f32 = f32 x f32, 7 x 13 x 5, none transpose, bias", "oneDNN"},
           {"f32 += bf16 x bf16, 7 x 13 x 5, none none", "AVX-512 BF16"}}};
}

/// The file's text with the first occurrence of `was` replaced by `is`.
std::string changed(const std::string& was, const std::string& is) {
  std::string text = tuning_text(of_a_host());
  const auto at = text.find(was);
  REQUIRE(at != std::string::npos);
  return text.replace(at, was.size(), is);
}

}  // namespace

TEST_CASE("a tuning file reads back as it was written, with and without threads or products") {
  TuningFile tuning = of_a_host();
  CHECK(parse_tuning(tuning_text(tuning), "x.toml") == tuning);
  tuning.threads = 0;
  tuning.products.clear();
  CHECK(parse_tuning(tuning_text(tuning), "x.toml") == tuning);
}

TEST_CASE("a damaged tuning file is refused in one line that names the line") {
  const auto refusal = [](const std::string& text) {
    const auto thrown = thrown_by([&] { parse_tuning(text, "x.toml"); });
    CHECK(thrown.status == 3);
    CHECK(thrown.text.find('\n') == std::string::npos);
    return thrown.text;
  };
  const std::string written = "; `kozero bench tune` writes one";
  CHECK(refusal(changed("library", "labrary")) == "x.toml:3: no tuning file: it has a key \"labrary\"" + written);
  CHECK(refusal(changed("device = ", "# ")) == "x.toml: no tuning file: it has no device = \"...\"" + written);
  CHECK(refusal(changed("\"oneDNN 2.6.0\"", "26")) == "x.toml: no tuning file: it has no library = \"...\"" + written);
  CHECK(refusal(changed("[products]", "# ")).starts_with("x.toml:7: no tuning file: it has a key \"f32 "));
  CHECK(refusal("device = \"a\"\nlibrary = \"b\"\n") == "x.toml: no tuning file: it has no [products]" + written);
  CHECK(refusal(changed("\"oneDNN\"", "1")) == "x.toml:8: no tuning file: a product's algorithm is a string" + written);
  const std::string broken = "no tuning file: a text has a control character: ";
  CHECK(refusal(changed("oneDNN 2", "one\\nDNN 2")) == "x.toml: " + broken + "\"one\\u000aDNN 2.6.0\"" + written);
  CHECK(refusal(changed("\"oneDNN\"", "\"one\\u007f\"")) == "x.toml:8: " + broken + "\"one\\u007f\"" + written);
  CHECK(refusal(changed("\"f32 =", "\"\\tf32 =")).starts_with("x.toml:8: " + broken + "\"\\u0009f32 ="));
  CHECK(refusal(changed("threads = 2", "threads = t")).starts_with("x.toml:4: no tuning file: "));  // 't<line end>'
  CHECK(refusal(changed("\"oneDNN\"", "oneDNN")).starts_with("x.toml:8: no tuning file: "));
}
