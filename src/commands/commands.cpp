// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// commands.cpp: the function of each command, and the help. Descriptions of commands are in src/program/command.cpp.
#include <fmt/format.h>
#include <iostream>
#include <map>

#include <kozero/commands/commands.hpp>
#include <kozero/program/option_parser.hpp>

namespace kozero::commands {
namespace {

void help(const distributed::Environment& environment, const Arguments& /*arguments*/) {
  if (environment.rank() != 0) return;
  std::cout << "KoZeRO trains GPT-2, Llama and Qwen language models with ZeRO stages 0-3.\n\n"
               "usage: kozero COMMAND ARGUMENT...   (its options: kozero COMMAND --help)\n\n";
  for (const auto& command : program::all_commands()) {
    if (!command.summary.empty()) std::cout << fmt::format("  {:<11} {}\n", command.name, command.summary);
  }
  std::cout << "\nSeveral ranks: ./kozero.sh -n RANKS ..., mpiexec -n RANKS kozero ..., srun.\n"
               "Version, commit and libraries: kozero --version.\n"
            << program::exit_statuses();
}

const std::map<std::string, program::Run> kRuns = {{"train", train},
                                                   {"verify", verify},
                                                   {"plan", plan},
                                                   {"eval", eval},
                                                   {"generate", generate},
                                                   {"plot", plot},
                                                   {"metrics", metrics},
                                                   {"watch", watch},
                                                   {"timeline", timeline},
                                                   {"inspect", inspect},
                                                   {"prepare", prepare},
                                                   {"export", export_weights},
                                                   {"import", import_weights},
                                                   {"bench", bench},
                                                   {"keys", keys},
                                                   {"completion", completion},
                                                   {"ranks", ranks},
                                                   {"help", help},
                                                   {"sweep", sweep},
                                                   {"report", report},
                                                   {"relay", relay}};

}  // namespace

program::Run function_of(const std::string& name) { return kRuns.at(program::command_named(name).name); }

void run_command(const distributed::Environment& environment, const Arguments& arguments) {
  const std::string name = arguments.empty() || program::asks_for_help(arguments[0]) ? "help" : arguments[0];
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  try {
    function_of(name)(environment, rest);
  } catch (const program::HelpAsked& help) {
    if (environment.rank() == 0) std::cout << help.text << std::flush;
  }
}

}  // namespace kozero::commands
