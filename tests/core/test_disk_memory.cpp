// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_disk_memory.cpp: arrays in mapped files keep their values, use no memory after release, and fail in one line.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/core/ledger.hpp>

using namespace kozero;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

constexpr std::int64_t kPage = 1024;  // floats

/// The bytes of this process's memory that are pages of this test's mapped files.
std::int64_t resident_bytes() {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool ours = false;
  std::int64_t bytes = 0;
  while (std::getline(maps, line)) {
    if (line.find('-') != std::string::npos && line.find("kB") == std::string::npos) {
      ours = line.find(".kozero-offload-") != std::string::npos;
    }
    if (ours && line.starts_with("Rss:")) bytes += std::stoll(line.substr(4)) * 1024;
  }
  return bytes;
}

/// A path to the process's only unnamed file, which has no other path.
std::string open_file() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.find(".kozero-offload-") != std::string::npos) return entry.path().string();
  }
  return "";
}

PageRange part_of(const Vector<float>& all, std::int64_t first, std::int64_t extent) {
  return {all.data() + first, extent * static_cast<std::int64_t>(sizeof(float))};
}

}  // namespace

TEST_CASE("an array on a disk begins with zeros, keeps its values when its pages go, and has no name") {
  DiskMemory disk(".", "rank 3");
  MemoryLedger ledger;
  const std::int64_t extent = 300 * kPage;
  const auto values = ledger.take<float>(Memory::optimizer, "exp_avg", extent, disk);
  const auto more = ledger.take<float>(Memory::optimizer, "exp_avg_sq", 5, disk);
  CHECK(ledger.bytes(Memory::disk) == 4 * (extent + 5));
  CHECK(ledger.total() == 0);
  for (const auto& entry : std::filesystem::directory_iterator(".")) {
    CHECK(entry.path().filename().string().find("offload") == std::string::npos);
  }
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < extent; ++i) wrong += values(i) == 0.0F ? 0 : 1;
  for (std::int64_t i = 0; i < extent; ++i) values(i) = static_cast<float>(i);
  more(4) = 7.0F;
  CHECK(resident_bytes() >= 4 * extent);
  release_pages(values);
  CHECK(resident_bytes() <= 4 * 2 * kPage);
  for (std::int64_t i = 0; i < extent; ++i) wrong += values(i) == static_cast<float>(i) ? 0 : 1;
  CHECK(wrong == 0);
  CHECK(more(4) == 7.0F);
}

TEST_CASE("memory that is no disk's is left alone") {
  std::vector<float> values(10 * kPage, 3.0F);
  release_pages({values.data(), static_cast<std::int64_t>(values.size() * sizeof(float))});
  read_ahead({values.data(), static_cast<std::int64_t>(values.size() * sizeof(float))});
  CHECK(values == std::vector<float>(10 * kPage, 3.0F));
}

TEST_CASE("a stream passes over its parts again and again, with few of them in memory") {
  DiskMemory disk(".", "rank 0");
  MemoryLedger ledger;
  constexpr std::int64_t kParts = 50;
  constexpr std::int64_t kPart = 3 * kPage + 64;  // ends within a page
  const auto a = ledger.take<float>(Memory::optimizer, "a", kParts * kPart, disk);
  const auto b = ledger.take<float>(Memory::optimizer, "b", kParts * kPart, disk);
  std::vector<float> elsewhere(kParts * kPart, 0.0F);
  std::vector<std::vector<PageRange>> parts;
  for (std::int64_t i = 0; i < kParts; ++i) {
    parts.push_back({part_of(a, i * kPart, kPart),
                     part_of(b, i * kPart, kPart),
                     {elsewhere.data() + i * kPart, kPart * static_cast<std::int64_t>(sizeof(float))}});
  }
  const std::int64_t budget = 4 * 2 * kPart * static_cast<std::int64_t>(sizeof(float));  // four parts
  std::int64_t most = 0;
  {
    PageStream stream(parts, budget);
    for (int cycle = 0; cycle < 3; ++cycle) {
      for (std::int64_t i = 0; i < kParts; ++i) {
        stream.await();
        for (std::int64_t j = i * kPart; j < (i + 1) * kPart; ++j) {
          a(j) += static_cast<float>(j);
          b(j) -= 1.0F;
          elsewhere[static_cast<std::size_t>(j)] += 1.0F;
        }
        stream.release();
        most = std::max(most, resident_bytes());
      }
    }
  }
  // A part may share its first and last page with its neighbors.
  CHECK(most <= budget + 5 * 4 * 4 * kPage);
  std::int64_t wrong = 0;
  for (std::int64_t j = 0; j < kParts * kPart; ++j) {
    wrong +=
        a(j) == 3.0F * static_cast<float>(j) && b(j) == -3.0F && elsewhere[static_cast<std::size_t>(j)] == 3.0F ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a disk that does not give its bytes back is an error of the stream, and ends a process that touches them") {
  DiskMemory disk(".", "rank 5");
  MemoryLedger ledger;
  const auto values = ledger.take<float>(Memory::optimizer, "exp_avg", 8 * kPage, disk);
  REQUIRE(truncate(open_file().c_str(), 0) == 0);
  PageStream stream({{part_of(values, 0, kPage)}, {part_of(values, kPage, kPage)}}, 1 << 20);
  CHECK_THROWS_MATCHES(stream.await(), Error,
                       MessageMatches(ContainsSubstring("exp_avg of rank 5 in ") &&
                                      ContainsSubstring("resume from the newest checkpoint")));
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    values(0) = 1.0F;
    _exit(0);
  }
  close(ends[1]);
  std::string said(200, ' ');
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(read(ends[0], said.data(), said.size()), 0)));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == static_cast<int>(Failure::input));
  CHECK(said.starts_with("[rank 5] error: a page of zero.offload_dir cannot be had"));
}

#if defined(__x86_64__)
TEST_CASE("a disk's error is reported where the stack pointer points nowhere, as in oneDNN's generated code") {
  DiskMemory disk(".", "rank 5");
  MemoryLedger ledger;
  const auto values = ledger.take<float>(Memory::optimizer, "exp_avg", 8 * kPage, disk);
  REQUIRE(truncate(open_file().c_str(), 0) == 0);
  const pid_t child = fork();
  if (child == 0) {
    use_signal_stack();
    asm volatile("mov $64, %%rsp\n\tmovl $0, (%0)" : : "r"(values.data()) : "memory");
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == static_cast<int>(Failure::input));
}
#endif

TEST_CASE("no room, no folder that may be written, and a file system in memory are refused before anything is used") {
  const auto refusal = [](const std::string& folder, std::int64_t bytes) {
    DiskMemory disk(folder, "rank 1");
    try {
      disk.share("exp_avg", bytes);
    } catch (const Error& error) {
      return std::to_string(static_cast<int>(error.failure())) + " " + error.what();
    }
    return std::string("taken");
  };
  CHECK_THAT(refusal(".", std::int64_t{1} << 50),
             ContainsSubstring("4 zero.offload_dir = ") && ContainsSubstring(" MiB for exp_avg of rank 1: "));
  CHECK_THAT(refusal("./not/there", 4096),
             ContainsSubstring("2 zero.offload_dir = \"./not/there\": no file can be made"));
  CHECK_THAT(refusal("/proc", 4096), ContainsSubstring("2 zero.offload_dir = \"/proc\": no file can be made there: "));
  CHECK_NOTHROW(DiskMemory::require(".", 4096));
  CHECK_THROWS_WITH(DiskMemory::require("./not/there", 4096), ContainsSubstring("no such folder here"));
  CHECK_THROWS_WITH(DiskMemory::require(".", std::int64_t{1} << 50), ContainsSubstring(" MiB are free; give a folder"));
  if (std::filesystem::exists("/dev/shm")) {
    CHECK_THAT(refusal("/dev/shm", 4096), ContainsSubstring("2 zero.offload_dir = \"/dev/shm\": it lies in memory"));
  }
}

TEST_CASE("a stream of one part, and one that ends in the middle of a cycle") {
  DiskMemory disk(".", "rank 0");
  MemoryLedger ledger;
  const auto values = ledger.take<float>(Memory::optimizer, "exp_avg", 20 * kPage, disk);
  {
    PageStream one({{part_of(values, 0, kPage)}}, 1);
    for (int cycle = 0; cycle < 5; ++cycle) {
      one.await();
      values(7) += 1.0F;
      one.release();
    }
    one.await();  // never released
  }
  CHECK(values(7) == 5.0F);
  std::vector<std::vector<PageRange>> parts;
  for (std::int64_t i = 0; i < 20; ++i) parts.push_back({part_of(values, i * kPage, kPage)});
  const PageStream unused(parts, 1);
}
