// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_named_file.cpp: a file that a command reads twice is the same at both readings.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <filesystem>

#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/posix/named_file.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::io {

using Catch::Matchers::ContainsSubstring;
using tests::ScratchFolder;
using tests::thrown_by;

TEST_CASE("a named file that changed since a command read it is refused at the second reading") {
  const ScratchFolder folder("named");
  const std::string path = folder.put("tokenizer.json", ByteTokenizer::file_text());
  const std::string other = ByteTokenizer::hugging_face_text();
  CHECK(make_tokenizer(path)->name() == "bytes");
  folder.put("tokenizer.json", other);
  CHECK(read_named_file(path, 1 << 20) == other);  // no command runs
  const NamedFiles files;
  CHECK(make_tokenizer(path)->name() == "bytes");
  CHECK(read_named_file(path, 1 << 20) == other);
  folder.put("tokenizer.json", ByteTokenizer::file_text());
  CHECK_THAT(thrown_by([&] { make_tokenizer(path); }).text,
             ContainsSubstring("tokenizer.json: it changed after this command had read it; start the command again"));
  folder.put("tokenizer.json", other);
  CHECK(make_tokenizer(path)->name() == "bytes");
}

TEST_CASE("a named file that is too large to be compared has one stamp in a command") {
  const FileDescriptor::Stamp first{10, 1, 2}, second{10, 1, 3};
  require_same_stamp("a", first);
  require_same_stamp("a", second);
  {
    const NamedFiles files;
    require_same_stamp("a", first);
    require_same_stamp("b", second);
    CHECK_THAT(thrown_by([&] { require_same_stamp("a", second); }).text, ContainsSubstring("a: it changed after"));
  }
  require_same_stamp("a", second);
}

}  // namespace kozero::io
