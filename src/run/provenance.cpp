// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// provenance.cpp: facts of the build and of the run, and quoting for a shell.
#include <fmt/format.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/mpi_settings.hpp>
#include <kozero/run/provenance.hpp>
#include "build_facts.hpp"
#include "io/deck/check.hpp"
#include "io/deck/schema.hpp"
#include "io/hdf5/handle.hpp"
#include "io/posix/readable.hpp"
#include "kernels/matmul/product_tuning.hpp"

namespace kozero::run {
namespace {

/// Each host once, in the order of the ranks.
std::string hosts_of(const std::vector<io::RankProcess>& ranks) {
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
  Facts facts = {{"version", build_facts::kVersion},           {"commit", build_facts::kCommit},
                 {"compiler", build_facts::kCompiler},         {"kokkos", build_facts::kKokkos},
                 {"mpi", distributed::Environment::library()}, {"hdf5", io::hdf5_version()},
                 {"products", kernels::product_library()}};
  if (*build_facts::kCuda != '\0') facts.emplace_back("cuda", build_facts::kCuda);
  return facts;
}

Facts run_facts(const std::string& command, const std::vector<io::RankProcess>& ranks) {
  Facts facts = {{"command", io::on_one_line(command)},
                 {"started", io::time_now()},
                 {"ranks", std::to_string(ranks.size())},
                 {"hosts", hosts_of(ranks)}};
  const auto& set = distributed::settings_of_mpi();
  if (ranks.size() > 1 && !set.empty()) facts.emplace_back("mpi_settings", distributed::text_of(set));
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

std::string text_override(const std::string& key, const std::string& value) {
  // A number, a date, a list and the like are TOML; a path or a word is not, and needs no quotes.
  const bool is_path = value.find('/') != std::string::npos;
  const bool is_word = !value.empty() && std::isalpha(static_cast<unsigned char>(value[0])) != 0 && value != "true" &&
                       value != "false" && value != "inf" && value != "nan";
  return key + "=" + (is_path || is_word ? value : io::toml_string(value));
}

std::string quoted_for_shell(const std::string& word) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,=@%+-";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  if (escaped(word) != word) {  // bash and zsh read $'a\nb'
    std::string text = "$'";
    for (const char letter : word) text += (letter == '\'' || letter == '\\' ? "\\" : "") + std::string(1, letter);
    return escaped(text) + "'";
  }
  std::string quoted = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      quoted += "'\\''";
    } else {
      quoted += letter;
    }
  }
  return quoted + "'";
}

void drop_repeated_keys(std::vector<std::string>& arguments) {
  const auto key_of = [](const std::string& argument) { return argument.substr(0, argument.find('=') + 1); };
  for (auto each = arguments.begin(); each != arguments.end();) {
    const std::string key = key_of(*each);
    const bool again = !key.empty() && std::any_of(std::next(each), arguments.end(),
                                                   [&](const std::string& later) { return key_of(later) == key; });
    each = again ? arguments.erase(each) : std::next(each);
  }
}

std::string launcher() { return std::string(build_facts::kMpiexec) + " -n {ranks}"; }

std::string slurm_launcher() {
  const bool is_mpich = distributed::Environment::library().find("MPICH") != std::string::npos;
  return is_mpich ? "srun --mpi=pmi2 -n {ranks}" : "srun -n {ranks}";
}

std::string command_line(const std::string& command, const std::vector<std::string>& arguments, int ranks) {
  const char* script = std::getenv("KOZERO_STARTED_BY");
  const std::string number = std::to_string(ranks);
  std::string line;
  if (script != nullptr) {
    const bool asks_deck = command == "train" || command == "verify";  // for the number of ranks
    line = script;
    if (ranks > 1 || asks_deck) line += " -n " + number;
  } else if (std::getenv("SLURM_STEP_ID") != nullptr && std::getenv("HYDI_CONTROL_FD") == nullptr && ranks > 1) {
    line = "srun -n " + number + " " + quoted_for_shell(program_invocation_name);
  } else {
    if (ranks > 1) line.append("mpiexec -n ").append(number).append(" ");
    line += quoted_for_shell(program_invocation_name);
  }
  line += " " + command;
  for (const auto& argument : arguments) line.append(" ").append(quoted_for_shell(argument));
  return line;
}

}  // namespace kozero::run
