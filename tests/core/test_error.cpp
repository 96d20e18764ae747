// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_error.cpp: nearest names, escapes in one-line texts, and broken invariants.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string>

#include <kozero/core/error.hpp>

using namespace kozero;

namespace {

std::string nearest(const std::string& given) {
  static const std::array<std::string, 4> kNames = {"stage", "accumulation", "overlap", "prefetch_units"};
  return nearest_name(given, kNames.data(), kNames.data() + kNames.size());
}

}  // namespace

TEST_CASE("the nearest name is offered only where it is near") {
  CHECK(nearest("stge") == "stage");
  CHECK(nearest("Stage") == "stage");
  CHECK(nearest("accumulate") == "accumulation");
  CHECK(nearest("prefetchunits") == "prefetch_units");
  CHECK(nearest("zebra").empty());
  CHECK(nearest("").empty());
}

TEST_CASE("texts of errors are one line: control characters are escaped, other bytes stay") {
  CHECK(escaped("plain \\ \"text\" \xC3\xA4 \xFF") == "plain \\ \"text\" \xC3\xA4 \xFF");
  CHECK(escaped(std::string("a\nb\tc\rd\x1b[2Je\x7f") + '\0') == "a\\nb\\tc\\x0dd\\x1b[2Je\\x7f\\x00");
  CHECK(escaped("\xC2\x9B"
                "2J \xC2") == "\\u009b2J \xC2");
  CHECK(escaped(escaped("a\nb")) == "a\\nb");
  CHECK(escaped("lost\n[rank 12]   newest collectives") == "lost\n[rank 12]   newest collectives");
  CHECK(escaped("lost\n[rank ]   \n[rank 1] error") == "lost\\n[rank ]   \\n[rank 1] error");
  CHECK(std::string(Error(Failure::input, "a\nb").what()) == "a\\nb");
  CHECK(failure_line(1, 3, "a\nb") == "[rank 1] error: a\\nb");
}

TEST_CASE("a broken invariant is an internal error with its text") {
  require(true, "unseen");
  try {
    require(false, "the slot is held");
    FAIL("no exception");
  } catch (const Error& error) {
    CHECK(error.exit_status() == 1);
    CHECK(std::string(error.what()) == "the slot is held");
    CHECK_FALSE(error.seen_by_all_ranks());
  }
}
