// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_mutations.cpp: damaged files, and paths that are not files, are read or rejected in one line, without a crash, a
// hang, or large allocations. The full test, with 10,000 mutations per kind of file:
//   KOZERO_MUTATIONS=10000 KOZERO_BUILD_JOBS=2 ./kozero.sh --preset asan test -R mutations
#include <catch2/catch_test_macros.hpp>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include <support/thrown.hpp>
#include "heap_peak.hpp"
#include "mutated.hpp"
#include "subjects.hpp"

namespace kozero::tests {
namespace {

constexpr unsigned kSeconds = 5;
constexpr std::int64_t kSpareBytes = 150'000'000;  // zstd may ask for 128 MiB

std::uint64_t num_rounds() {
  const char* given = std::getenv("KOZERO_MUTATIONS");
  return given == nullptr ? 300 : std::strtoull(given, nullptr, 10);
}

/// The subject that is being read, for the alarm's message.
std::string at_work;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void say_hang(int /*signal*/) {
  const char text[] = " hangs\n";
  if (::write(STDERR_FILENO, at_work.data(), at_work.size()) < 0 ||
      ::write(STDERR_FILENO, text, sizeof(text) - 1) < 0) {
    ::_exit(2);
  }
  ::_exit(1);
}

/// The problem of reading the damaged file; "" if there is none. Counts refusals.
std::string fault_of(const Subject& subject, const std::string& bytes, std::uint64_t& refused) {
  reset_heap_peak();
  ::alarm(kSeconds);
  Thrown thrown;
  try {
    thrown = thrown_by(subject.read);
  } catch (const std::exception& other) {
    thrown = {1, other.what()};
  }
  ::alarm(0);
  const std::int64_t allowed = 2 * static_cast<std::int64_t>(bytes.size()) + kSpareBytes;
  if (heap_peak() > allowed) return "it took " + std::to_string(heap_peak()) + " bytes";
  if (thrown.status == 0) return "";
  ++refused;
  if (thrown.status != subject.refusal) return "exit status " + std::to_string(thrown.status) + ": " + thrown.text;
  if (thrown.text.find('\n') != std::string::npos) return "more than one line: " + thrown.text;
  const std::string folder = subject.path.substr(0, subject.path.rfind('/'));
  if (thrown.text.find(folder) == std::string::npos) return "the file is not named: " + thrown.text;
  return "";
}

}  // namespace

TEST_CASE("every kind of file, changed by accident, is read or refused in one line") {
  const ScratchFolder folder("fuzz");
  REQUIRE(::signal(SIGALRM, say_hang) != SIG_ERR);
  for (const auto& subject : all_subjects(folder)) {
    INFO(subject.name);
    REQUIRE(thrown_by(subject.read).text == "");
    const std::string path = std::filesystem::relative(subject.path, folder.path()).string();
    std::uint64_t refused = 0;
    for (std::uint64_t round = 0; round < num_rounds(); ++round) {
      at_work = subject.name + ", round " + std::to_string(round);
      const std::string bytes = mutated(subject.honest, subject.name, round);
      folder.put(path, bytes);
      const std::string fault = fault_of(subject, bytes, refused);
      if (!fault.empty()) FAIL_CHECK(at_work << ": " << fault);
    }
    folder.put(path, subject.honest);
    CAPTURE(subject.name, refused);
    CHECK(refused > 0);
    CHECK((refused > num_rounds() * 9 / 10 || !subject.name.ends_with(".h5")));
  }
}

TEST_CASE("texts that nest 50,000 deep are refused in one line, and so are NULs in texts") {
  const ScratchFolder folder("deep");
  REQUIRE(::signal(SIGALRM, say_hang) != SIG_ERR);
  const auto repeated = [](std::string text, const std::string& part, const std::string& end = "") {
    for (int i = 0; i < 50000; ++i) text += part;
    return text.append(end);
  };
  const std::vector<std::string> toml = {
      repeated("a", ".a", " = 1"), repeated("[a", ".a", "]"), repeated("[[a", ". 'a'", "]]"), repeated("a = ", "["),
      repeated("a = ", "{a = "),   "run.dir = \"a\\u0000b\"", "data.text = [\"a\\u0000b\"]"};
  const std::vector<std::string> json = {repeated("", "["), repeated("", "{\"a\":")};
  for (const auto& subject : all_subjects(folder)) {
    const bool is_toml = subject.name == "deck" || subject.name == "tuning file";
    const bool is_json = subject.name.ends_with("json") || subject.name == "safetensors index";
    for (const auto& text : is_toml ? toml : is_json ? json : std::vector<std::string>()) {
      at_work = subject.name + ": " + text.substr(0, 20);
      CAPTURE(at_work);
      folder.put(std::filesystem::relative(subject.path, folder.path()).string(), text);
      std::uint64_t refused = 0;
      CHECK(fault_of(subject, text, refused) == "");
      CHECK(refused == 1);
    }
    folder.put(std::filesystem::relative(subject.path, folder.path()).string(), subject.honest);
  }
}

TEST_CASE("what is no regular file is refused in one line, and nothing waits for it") {
  const ScratchFolder folder("no_file");
  REQUIRE(::signal(SIGALRM, say_hang) != SIG_ERR);
  const std::map<std::string, std::function<bool(const char*)>> kinds = {
      {"FIFO", [](const char* path) { return ::mkfifo(path, 0644) == 0; }},
      {"folder", [](const char* path) { return ::mkdir(path, 0755) == 0; }},
      {"link to itself", [](const char* path) { return ::symlink(path, path) == 0; }},
      {"device without an end", [](const char* path) { return ::symlink("/dev/zero", path) == 0; }}};
  for (const auto& subject : all_subjects(folder)) {
    for (const auto& [kind, make] : kinds) {
      at_work = subject.name + " as a " + kind;
      CAPTURE(at_work);
      std::filesystem::remove_all(subject.path);
      REQUIRE(make(subject.path.c_str()));
      std::uint64_t refused = 0;
      CHECK(fault_of(subject, "", refused).empty());
      CHECK(refused == 1);
    }
    std::filesystem::remove_all(subject.path);
    folder.put(std::filesystem::relative(subject.path, folder.path()).string(), subject.honest);
  }
}

}  // namespace kozero::tests
