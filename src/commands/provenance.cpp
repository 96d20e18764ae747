// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <kozero/commands/command.hpp>
#include <kozero/dist/environment.hpp>
#include <kozero/dist/launcher.hpp>
#include <kozero/io/hdf5_open.hpp>
#include <kozero/io/readable.hpp>
#include <kozero/kernels/product_tuning.hpp>

#include "build_facts.hpp"
#include "provenance.hpp"

namespace kozero::commands {
namespace {

/// Each host once, in the order of the ranks.
std::string hosts_of(const std::vector<io::RankPlace>& ranks) {
  std::vector<std::string> hosts;
  std::string text;
  for (const auto& rank : ranks) {
    if (std::find(hosts.begin(), hosts.end(), rank.host) != hosts.end()) continue;
    text += (hosts.empty() ? "" : ", ") + rank.host;
    hosts.push_back(rank.host);
  }
  return text;
}

}  // namespace

Facts program_facts() {
  Facts facts = {{"version", build_facts::kVersion},      {"commit", build_facts::kCommit},
                 {"compiler", build_facts::kCompiler},    {"kokkos", build_facts::kKokkos},
                 {"mpi", dist::Environment::library()},   {"hdf5", io::hdf5_version()},
                 {"products", kernels::product_library()}};
  if (*build_facts::kCuda != '\0') facts.emplace_back("cuda", build_facts::kCuda);
  return facts;
}

Facts run_facts(const std::string& command, const std::vector<io::RankPlace>& ranks) {
  Facts facts = {{"command", io::on_one_line(command)},
                 {"started", io::time_now()},
                 {"ranks", std::to_string(ranks.size())},
                 {"hosts", hosts_of(ranks)}};
  for (auto& fact : program_facts()) facts.push_back(std::move(fact));
  return facts;
}

std::vector<std::string> lines_of(const Facts& facts) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : facts) lines.push_back(fmt::format("{:<12} {}", name, value));
  return lines;
}

std::string json_of(const Facts& facts) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : facts) json[name] = value;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

bool say_version(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] != "--version") return false;
  if (dist::known_rank() != 0) return true;
  const Facts facts = program_facts();
  std::cout << "kozero " << facts.front().second << "\n";
  for (const auto& line : lines_of({facts.begin() + 1, facts.end()})) std::cout << line << "\n";
  std::cout << std::flush;
  return true;
}

}  // namespace kozero::commands
