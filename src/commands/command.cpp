// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>

#include <kozero/commands/command.hpp>
#include <kozero/core/error.hpp>

namespace kozero::commands {
namespace {

void help(const dist::Environment& environment, const Arguments& /*arguments*/) {
  if (environment.rank() != 0) return;
  std::cout << "kozero trains GPT-2 and Llama models with ZeRO stages 0-3.\n\nusage: kozero COMMAND ARGUMENTS\n\n";
  for (const auto& command : all_commands()) {
    if (command.summary.empty()) continue;
    std::cout << "  " << command.name << ' ' << command.arguments << "\n      " << command.summary << "\n";
  }
  std::cout << "\nSeveral ranks: ./kozero.sh -n RANKS COMMAND ..., or mpiexec -n RANKS kozero COMMAND ..., or srun.\n"
               "Exit status: 0 done, 1 internal, 2 deck or usage, 3 bad input file, 4 write failed, 5 rank or\n"
               "communication lost, 6 non-finite, 75 stopped by a signal or run.max_minutes: run again to go on,\n"
               "130 a second SIGINT. A training run's status.json says the same of it.\n"
               "`kozero --version` prints version, commit and libraries.\n";
}

bool asks_for_help(const std::string& argument) { return argument == "--help" || argument == "-h"; }

void say_usage(const dist::Environment& environment, const Command& command) {
  if (environment.rank() != 0) return;
  std::cout << "usage: kozero " << command.name << ' ' << command.arguments << "\n  " << command.summary << std::endl;
}

}  // namespace

const std::vector<Command>& all_commands() {
  static const std::vector<Command> kCommands = {
      {"train", "DECK [section.key=value ...] [--verify-data] [--steal-lock] [--json]",
       "train a model as the deck says (--verify-data: read and check all token shards before the first step; "
       "--steal-lock: take the folder of a run whose host was lost)",
       train, true},
      {"verify", "DECK [section.key=value ...] [--steps N] | RUN [section.key=value ...] --replay STEP",
       "show that all ZeRO stages give the same bits for a deck; with --replay, compute a step of a run again from its "
       "nearest checkpoint and compare bits: status 0 where they are equal, 1 where they are not",
       verify, true},
      {"plan", "DECK [section.key=value ...] [--ranks N] [--json]",
       "what each stage needs of memory, without allocating it", plan},
      {"eval", "DECK | RUN | WEIGHTS | CHECKPOINT | HF_FOLDER [data.key=value ...] [--json]",
       "loss, perplexity and bits per byte of trained weights", eval, true},
      {"generate",
       "DECK | RUN | WEIGHTS | CHECKPOINT | HF_FOLDER [--prompt TEXT] [--tokens N] [--temperature X] [--top-k K] "
       "[--top-p P] [--seed S] [data.tokenizer=FILE]",
       "continue a text with trained weights", generate, true},
      {"inspect", "CHECKPOINT | RUN | WEIGHTS [--tensors PATTERN] [--stats] [--verify] [--diff OTHER] [--json]",
       "what is in a checkpoint (--stats: norms and extremes; --verify: every byte against the manifest); with --diff, "
       "as cmp: status 0 where all tensors are equal in bits, 1 where one differs",
       inspect},
      {"prepare", "TEXT... OUT [--tokenizer bytes|bpe:N|FILE] [--val-fraction X]", "turn text into token shards",
       prepare},
      {"export",
       "DECK | RUN | WEIGHTS | CHECKPOINT OUT [--best] [--dtype f32|bf16|f16] [--max-shard-mib N] [--weights-only]",
       "trained weights as a folder for Hugging Face's transformers, or as one plain HDF5 file (--best: of a run, its "
       "checkpoint with the lowest validation loss)",
       export_weights},
      {"import", "HF_FOLDER OUT", "a Hugging Face folder (gpt2, llama, qwen2, qwen3; safetensors) as a run's folder",
       import_weights},
      {"bench",
       "checkpoint DECK | kernels DECK | step DECK | tune DECK | collectives [section.key=value ...] [--out FILE] "
       "[--mib LIST] [--runs N] [--json]",
       "measure a part beside something plain, and print the ratios", bench, true},
      {"keys", "", "every key of an input deck, with default, accepted values and meaning", keys},
      {"ranks", "DECK [section.key=value ...]", "", ranks},
      {"help", "", "this text", help},
  };
  return kCommands;
}

void run_command(const dist::Environment& environment, const Arguments& arguments) {
  const std::string name = arguments.empty() || asks_for_help(arguments[0]) ? "help" : arguments[0];
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  std::vector<std::string> names;
  for (const auto& command : all_commands()) {
    if (command.name == name) {
      const bool explains = std::any_of(rest.begin(), rest.end(), asks_for_help);
      return explains ? say_usage(environment, command) : command.run(environment, rest);
    }
    names.push_back(command.name);
  }
  const std::string nearest = nearest_name(name, names.data(), names.data() + names.size());
  throw Error(Failure::deck,
              "unknown command \"" + name + "\"" + (nearest.empty() ? "; " : ": did you mean " + nearest + "? ") +
                  "`kozero help` lists them",
              Error::Seen::by_all_ranks);
}

}  // namespace kozero::commands
