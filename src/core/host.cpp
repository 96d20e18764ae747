// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// host.cpp: the CPUs of this process from the scheduler, OpenMP and /sys; stacks for signal handlers.
#include <sched.h>
#include <sys/auxv.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include <kozero/core/host.hpp>

namespace kozero {
namespace {

void add_places_of_openmp([[maybe_unused]] std::set<int>& cpus) {
#if defined(_OPENMP)
  if (omp_get_proc_bind() == omp_proc_bind_false) return;
  for (int openmp_place = 0; openmp_place < omp_get_num_places(); ++openmp_place) {
    CpuSet here(static_cast<std::size_t>(omp_get_place_num_procs(openmp_place)));
    omp_get_place_proc_ids(openmp_place, here.data());
    cpus.insert(here.begin(), here.end());
  }
#endif
}

/// The CPUs on which some thread of this process may run. Empty if the system does not report them.
cpu_set_t cpus_of_all_threads() {
  cpu_set_t all;
  CPU_ZERO(&all);
  std::error_code problem;
  for (std::filesystem::directory_iterator thread("/proc/self/task", problem), end; !problem && thread != end;
       thread.increment(problem)) {
    cpu_set_t one;
    CPU_ZERO(&one);
    const int id = std::atoi(thread->path().filename().c_str());
    if (sched_getaffinity(id, sizeof(one), &one) == 0) CPU_OR(&all, &all, &one);
  }
  return all;
}

std::string folder_of(int cpu, const std::string& devices) { return devices + "/cpu/cpu" + std::to_string(cpu); }

/// The lowest CPU of the core that `cpu` belongs to; `cpu` if the system does not report it.
int first_sibling(int cpu, const std::string& devices) {
  std::ifstream siblings(folder_of(cpu, devices) + "/topology/thread_siblings_list");
  int first = cpu;
  return siblings >> first ? first : cpu;
}

/// -1 if the system does not report it.
int numa_domain_of(int cpu, const std::string& devices) {
  const std::string prefix = "node";
  std::error_code problem;
  for (std::filesystem::directory_iterator entry(folder_of(cpu, devices), problem), end; !problem && entry != end;
       entry.increment(problem)) {
    const std::string name = entry->path().filename();
    if (name.starts_with(prefix) && std::isdigit(static_cast<unsigned char>(name.back())) != 0) {
      return std::atoi(name.c_str() + prefix.size());
    }
  }
  return -1;
}

/// The thread's stack for signal handlers, until the thread ends.
class SignalStack {
 public:
  SignalStack() {
    stack_t now{};
    if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
    // The system's minimum includes the saved registers: several KiB with AVX-512 and AMX.
    memory_.resize(static_cast<std::size_t>(MINSIGSTKSZ) + getauxval(AT_MINSIGSTKSZ) + kForHandlers);
    const stack_t mine{memory_.data(), 0, memory_.size()};
    sigaltstack(&mine, nullptr);
  }
  ~SignalStack() {
    const stack_t none{nullptr, SS_DISABLE, 0};
    if (!memory_.empty()) sigaltstack(&none, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  static constexpr std::size_t kForHandlers = 32 << 10;
  std::vector<std::byte> memory_;
};

}  // namespace

CpuSet allowed_cpus() {
  const cpu_set_t set = cpus_of_all_threads();
  std::set<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.insert(cpu);
  }
  add_places_of_openmp(cpus);
  return {cpus.begin(), cpus.end()};
}

std::vector<CpuSet> cores_of(const CpuSet& cpus, const std::string& devices) {
  std::map<std::pair<int, int>, CpuSet> by_domain_and_sibling;
  for (const int cpu : cpus) {
    by_domain_and_sibling[{numa_domain_of(cpu, devices), first_sibling(cpu, devices)}].push_back(cpu);
  }
  std::vector<CpuSet> cores;
  for (auto& [place, core] : by_domain_and_sibling) cores.push_back(std::move(core));
  return cores;
}

std::vector<int> core_numbers(const CpuSet& cpus, const std::string& devices) {
  std::set<int> numbers;
  for (const int cpu : cpus) numbers.insert(first_sibling(cpu, devices));
  return {numbers.begin(), numbers.end()};
}

std::vector<int> numa_domains_of(const CpuSet& cpus, const std::string& devices) {
  std::set<int> domains;
  for (const int cpu : cpus) domains.insert(numa_domain_of(cpu, devices));
  domains.erase(-1);
  return {domains.begin(), domains.end()};
}

std::string as_ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (last > i) text.append("-").append(std::to_string(numbers[last]));
    i = last;
  }
  return text;
}

std::vector<int> numbers_in_ranges(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0;
    int last = 0;
    const int read = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (read < 1) return {};
    for (int number = first; number <= (read == 2 ? last : first); ++number) numbers.push_back(number);
  }
  return numbers;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "unknown";
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

bool bind_this_thread(const CpuSet& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

void use_signal_stack() { thread_local const SignalStack kStack; }

void run_on_any_cpu() {
  const cpu_set_t all = cpus_of_all_threads();
  // If the system refuses, the thread stays on one core: slower, not wrong.
  if (CPU_COUNT(&all) > 0) static_cast<void>(sched_setaffinity(0, sizeof(all), &all));
}

}  // namespace kozero
