// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_host.cpp: cores and NUMA domains read from a description of a machine, and ranges of numbers as text.
#include <unistd.h>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <kozero/core/host.hpp>

using namespace kozero;

namespace {

/// A folder as /sys/devices/system, with `count` CPUs; removed at the end.
class Machine {
 public:
  /// `siblings(cpu)`: thread_siblings_list; `domain(cpu)`: the NUMA domain, -1 for none.
  Machine(int count, const std::function<std::string(int)>& siblings, const std::function<int(int)>& domain)
      : folder_(std::filesystem::temp_directory_path() / ("kozero_machine_" + std::to_string(::getpid()))) {
    for (int cpu = 0; cpu < count; ++cpu) {
      const auto folder = folder_ / "cpu" / ("cpu" + std::to_string(cpu));
      std::filesystem::create_directories(folder / "topology");
      std::ofstream(folder / "topology" / "thread_siblings_list") << siblings(cpu) << "\n";
      if (domain(cpu) >= 0) std::filesystem::create_directory(folder / ("node" + std::to_string(domain(cpu))));
    }
  }
  ~Machine() { std::filesystem::remove_all(folder_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] std::string folder() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

std::string alone(int cpu) { return std::to_string(cpu); }

}  // namespace

TEST_CASE("cores are ordered by NUMA domain where the CPUs' numbers alternate between domains") {
  const Machine machine(8, alone, [](int cpu) { return cpu % 2; });
  const CpuSet all = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(cores_of(all, machine.folder()) == std::vector<CpuSet>{{0}, {2}, {4}, {6}, {1}, {3}, {5}, {7}});
  CHECK(numa_domains_of(all, machine.folder()) == std::vector<int>{0, 1});
  CHECK(numa_domains_of({1, 5}, machine.folder()) == std::vector<int>{1});
}

TEST_CASE("the CPUs of a core stay together, also if only some are allowed") {
  const Machine machine(
      8, [](int cpu) { return std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4); },
      [](int cpu) { return cpu % 4 / 2 == 0 ? 10 : 2; });
  CHECK(cores_of({0, 1, 2, 3, 4, 5, 6, 7}, machine.folder()) == std::vector<CpuSet>{{2, 6}, {3, 7}, {0, 4}, {1, 5}});
  CHECK(cores_of({1, 2, 5}, machine.folder()) == std::vector<CpuSet>{{2}, {1, 5}});
  CHECK(core_numbers({5}, machine.folder()) == core_numbers({1}, machine.folder()));
  CHECK(core_numbers({3, 5, 6, 7}, machine.folder()) == std::vector<int>{1, 2, 3});
}

TEST_CASE("a system without NUMA domains, or that describes nothing, has one core per CPU") {
  const Machine machine(2, alone, [](int) { return -1; });
  CHECK(cores_of({0, 1}, machine.folder()) == std::vector<CpuSet>{{0}, {1}});
  CHECK(numa_domains_of({0, 1}, machine.folder()).empty());
  CHECK(cores_of({0, 1}, machine.folder() + "/nothing") == std::vector<CpuSet>{{0}, {1}});
}

TEST_CASE("this machine's own CPUs are described") {
  const CpuSet cpus = allowed_cpus();
  REQUIRE_FALSE(cpus.empty());
  std::size_t count = 0;
  for (const auto& core : cores_of(cpus)) count += core.size();
  CHECK(count == cpus.size());
}

TEST_CASE("ranges are read as they are written") {
  for (const CpuSet& numbers : {CpuSet{}, CpuSet{3}, CpuSet{0, 1, 2, 3, 6}, CpuSet{0, 2, 4, 5}}) {
    CHECK(numbers_in_ranges(as_ranges(numbers)) == numbers);
  }
  CHECK(as_ranges({0, 1, 2, 3, 6}) == "0-3,6");
  CHECK(numbers_in_ranges("a").empty());
}
