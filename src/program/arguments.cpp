// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// arguments.cpp: --json, and the deck read with its overrides and agreed on by all ranks.
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/device_choice.hpp>
#include <kozero/run/session.hpp>
#include <kozero/run/start_checks.hpp>
#include <kozero/run/weights_source.hpp>
#include "io/deck/named_deck.hpp"
#include "io/deck/schema.hpp"

namespace kozero::program {

void JsonOutput::add_to(OptionParser& parser) {
  parser.add_flag(
      "--json",
      [this] {
        std::cout.flush();
        std::fflush(stdout);
        line_output_ = ::dup(STDOUT_FILENO);
        if (line_output_ < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
          throw Error(Failure::internal,
                      std::string("--json: cannot redirect standard output: ") + std::strerror(errno));
        }
        ::unsetenv("KOZERO_TERMINAL");  // the width of the old standard output
      },
      "print one line of JSON on standard output, all else on standard error");
}

void JsonOutput::print(const nlohmann::ordered_json& json) const {
  if (!is_asked()) return;
  std::cout.flush();
  const std::string line = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(line_output_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error(Failure::write, std::string("standard output: ") + std::strerror(errno));
    done += static_cast<std::size_t>(written);
  }
}

namespace {

/// "data.text, comm.*": sections end in a point.
std::string listed(const std::vector<std::string>& keys) {
  std::string list;
  for (const auto& key : keys) list += (list.empty() ? "" : ", ") + key + (key.ends_with('.') ? "*" : "");
  return list;
}

}  // namespace

void add_adapter_option(OptionParser& parser, std::string& folder) {
  parser.add("--adapter", folder, "a PEFT folder, whose adapters are added to the weights")
      .default_text("none")
      .type_name("FOLDER");
}

void DeckArguments::add_to(OptionParser& parser, const std::vector<std::string>& applied) {
  parser.add("deck", path).required();
  parser.add("overrides", overrides, applied.empty() ? "" : "changes one of " + listed(applied));
}

bool DeckArguments::gives(const std::string& key) const {
  const std::string wanted = key.ends_with('.') ? key : key + "=";
  return std::any_of(overrides.begin(), overrides.end(),
                     [&](const std::string& each) { return each.starts_with(wanted); });
}

void DeckArguments::require_applied(const std::string& command, const std::vector<std::string>& applied) const {
  for (const auto& each : overrides) {
    const std::string key = each.substr(0, each.find('='));
    const bool is_applied = std::any_of(applied.begin(), applied.end(), [&](const std::string& name) {
      return name.ends_with('.') ? key.starts_with(name) : key == name;
    });
    if (is_applied || io::find_row(key) == nullptr) continue;
    throw Error(Failure::deck,
                "command line: " + each + ": " + command + " does not read it; accepted are " + listed(applied),
                Error::Seen::by_all_ranks);
  }
}

io::Deck DeckArguments::read(distributed::Communicator& comm) const {
  io::Deck deck = distributed::agreed(comm, [&] { return io::read_named_deck(path, overrides); });
  run::require_same_deck(deck, comm);
  return run::with_initial_model(std::move(deck), comm);
}

io::Deck DeckArguments::read_for_any_device(distributed::Communicator& comm) const {
  return run::without_device(read(comm));
}

}  // namespace kozero::program
