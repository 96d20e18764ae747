// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_weights_header.cpp: the header of a weights file detects any change of the file.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <kozero/distributed/communicator.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/checkpoint/weights_file.hpp"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace kozero::io {

using namespace tests;

namespace {

/// A weights file of one tensor.
std::string write_one(const ScratchFolder& folder) {
  ParameterTable table;
  table.add_unit("u", 0);
  Parameter row;
  row.name = "w";
  row.shape = {70, 100};
  table.add(row);
  WeightsStream stream(folder / "w.h5", table, {.model = R"({"arch": "none", "a b": [1]})", .step = 7, .tokens = 99});
  stream.write(0, 0, std::vector<float>(7000, 0.5F));
  stream.close();
  return folder / "w.h5";
}

Thrown verifying(const std::string& path) {
  return thrown_by([&] { verify_weights_header(*distributed::make_self_communicator(), path); });
}

}  // namespace

TEST_CASE("a header says what was written, and vouches for every byte") {
  const ScratchFolder folder("header");
  const std::string path = write_one(folder);
  const auto description = read_weights_header(path);
  CHECK(description.model == R"({"arch": "none", "a b": [1]})");
  CHECK(description.step == 7);
  CHECK(description.tokens == 99);
  verify_weights_header(*distributed::make_self_communicator(), path);

  const std::string bytes = bytes_of(path);
  const auto flipped = [&](std::size_t at) {
    std::string other = bytes;
    other[at] = static_cast<char>(other[at] ^ 4);
    return folder.put("other.h5", other);
  };
  CHECK_THAT(verifying(flipped(0)).text, ContainsSubstring("other.h5: not a weights file that KoZeRO wrote"));
  for (const std::size_t at : {std::size_t{30}, std::size_t{60}, std::size_t{200}, std::size_t{4095}}) {
    INFO("byte " << at);
    CHECK_THAT(verifying(flipped(at)).text,
               EndsWith("other.h5: its first 4096 bytes, the header, are not what was written"));
    CHECK(thrown_by([&] { read_weights_header(folder / "other.h5"); }).status == 3);
  }
  const std::string behind = "bytes 4096 to " + std::to_string(bytes.size() - 1) + " are not what its header says";
  for (const std::size_t at : {std::size_t{4096}, bytes.size() / 2, bytes.size() - 1}) {
    INFO("byte " << at);
    const auto error = verifying(flipped(at));
    CHECK(error.status == 3);
    CHECK_THAT(error.text, EndsWith(behind));
  }
}

TEST_CASE("a file cut short, grown or foreign is refused in one line") {
  const ScratchFolder folder("unsealed");
  const std::string bytes = bytes_of(write_one(folder));
  const auto size = [&](std::size_t now) {
    return std::to_string(now) + " bytes, its header says " + std::to_string(bytes.size());
  };
  CHECK_THAT(verifying(folder.put("cut.h5", bytes.substr(0, bytes.size() - 1))).text, EndsWith(size(bytes.size() - 1)));
  CHECK_THAT(verifying(folder.put("grown.h5", bytes + "x")).text, EndsWith(size(bytes.size() + 1)));
  CHECK_THAT(verifying(folder.put("short.h5", bytes.substr(0, 100))).text, ContainsSubstring("the header, are not"));
  CHECK_THAT(verifying(folder.put("empty.h5", "")).text, ContainsSubstring("it begins with no KoZeRO header"));
  CHECK_THAT(verifying(folder / "none.h5").text, ContainsSubstring("none.h5: cannot open: "));
  CHECK_THAT(verifying(folder.put("plain.h5", bytes.substr(4096))).text,
             EndsWith("other weights come in by kozero import"));
}

}  // namespace kozero::io
