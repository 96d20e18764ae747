// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// command.cpp: the table of commands and the table of benchmarks, and the lookup of a name.
#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/program/command.hpp>
#include <kozero/program/option_parser.hpp>

namespace kozero::program {

/// A new command is a row here, and one in src/commands/commands.cpp.
const std::vector<Command>& all_commands() {
  static const std::string kTrained = "DECK | RUN | WEIGHTS | CHECKPOINT | HF_FOLDER";
  static const std::vector<Command> kCommands = {
      {"train", "DECK [section.key=value ...]", "train a model as the deck says",
       "train inputs/quickstart.toml zero.stage=3 run.steps=500", true},
      {"verify", "DECK | RUN [section.key=value ...]", "show that all ZeRO stages give the same bits; recompute a step",
       "verify inputs/quickstart.toml --steps 2", true},
      {"plan", "DECK [section.key=value ...]", "memory, traffic and time of each ZeRO stage, and what to change",
       "plan inputs/gpt2_124m.toml --ranks 8"},
      {"sweep", "MATRIX [section.key=value ...]", "train every combination of a matrix's values, each once",
       "sweep inputs/sweep_stages.toml --dry-run", false, "", true},
      {"eval", kTrained + " [section.key=value ...]",
       "loss, perplexity, accuracy on multiple choice, of trained weights",
       "eval runs/quickstart data.text=inputs/text/alice.txt", true},
      {"generate", kTrained + " [section.key=value ...]", "continue a text, or chat, with trained weights",
       "generate runs/quickstart --prompt 'She had' --tokens 200", true},
      {"plot", "RUN...", "draw loss, validation, learning rate and gradient norm of runs",
       "plot runs/quickstart runs/quickstart-2 --out loss.svg", false, "", true},
      {"report", "RUN... | SWEEP", "one page with a verdict, figures and tables of runs or of a sweep",
       "report runs/quickstart runs/quickstart-2 --out report", false, "", true},
      {"watch", "RUN", "follow a run in the terminal: progress, curve, memory, ranks", "watch runs/quickstart", false,
       "", true},
      {"metrics", "RUN", "a run's newest steps as a table, or all of them as CSV", "metrics runs/quickstart --csv",
       false, "", true},
      {"timeline", "RUN", "overlap, waits, imbalance, operations of recorded steps", "timeline runs/quickstart", false,
       "", true},
      {"inspect", "CHECKPOINT | RUN | WEIGHTS", "contents, statistics, verification and differences of checkpoints",
       "inspect runs/quickstart --tensors '*wte*' --stats"},
      {"prepare", "TEXT... OUT", "turn text into token shards", "prepare docs src tokens --tokenizer bpe:4096"},
      {"export", "DECK | RUN | WEIGHTS | CHECKPOINT OUT", "write trained weights for Hugging Face's transformers",
       "export runs/quickstart hf --dtype bf16"},
      {"import", "HF_FOLDER OUT", "read a Hugging Face folder (gpt2, llama, qwen2, qwen3)", "import hf runs/imported"},
      {"bench", "NAME ...", "measure kernels, steps, stages, checkpoints or collectives",
       "bench step inputs/quickstart.toml", true, "checkpoint kernels step stages tune collectives"},
      {"keys", "[SECTION | WORD]", "keys of a deck: meaning, accepted values, default", "keys zero", false, "", true},
      {"completion", "bash | zsh", "print a completion script for a shell", "completion bash", false, "", true},
      {"ranks", "train | verify ARGUMENT...", "", "ranks train inputs/quickstart.toml"},
      {"relay", "[FILE]", "", "relay", false, "", true},
      {"help", "[COMMAND]", "this text, or the help of a command", "help bench kernels", false, "", true},
  };
  return kCommands;
}

/// A new benchmark is a row here, and one in src/bench/bench.cpp.
const std::vector<Command>& benchmarks() {
  static const std::string kDeck = "DECK [section.key=value ...]";
  static const std::vector<Command> kBenchmarks = {
      {"bench checkpoint", kDeck, "saving beside plain writing and copying",
       "bench checkpoint inputs/demos/synthetic.toml", true, "--runs --json KEYS"},
      {"bench kernels", kDeck, "every kernel of a step beside the best product and a stream",
       "bench kernels inputs/gpt2_124m.toml --runs 3", true, "--runs --json KEYS"},
      {"bench step", kDeck, "where the time of training steps goes, and what is idle",
       "bench step inputs/quickstart.toml", true, "--runs --json KEYS"},
      {"bench stages", kDeck, "the four ZeRO stages as measured: time, memory, bytes, communication, equal bits",
       "bench stages inputs/quickstart.toml", true, "--steps --runs --json KEYS"},
      {"bench tune", kDeck, "the fastest algorithm of each matrix product, as a file for run.tuning",
       "bench tune inputs/gpt2_124m.toml --out tuning.toml", true, "--out --runs KEYS"},
      {"bench collectives", "", "reduce-scatter and all-gather beside MPI's (stage 0's all-reduce is both in turn)",
       "bench collectives --size 16MiB,64MiB", true,
       "--size --minbytes --maxbytes --stepfactor --backend --runs --json"},
  };
  return kBenchmarks;
}

const Command& command_named(const std::string& name) {
  std::vector<std::string> names;
  for (const auto* list : {&all_commands(), &benchmarks()}) {
    for (const auto& command : *list) {
      if (command.name == name) return command;
      if (!command.summary.empty()) names.push_back(command.name);
    }
  }
  const std::string nearest = nearest_name(name, names.data(), names.data() + names.size());
  throw Error(Failure::deck,
              "unknown command \"" + name + "\"" + (nearest.empty() ? "; " : ": did you mean " + nearest + "? ") +
                  "`kozero help` lists them",
              Error::Seen::by_all_ranks);
}

bool needs_mpi(const Arguments& arguments) {
  if (arguments.empty() || (arguments.size() == 2 && asks_for_help(arguments[1]))) return false;
  const auto& all = all_commands();
  return std::any_of(all.begin(), all.end(),
                     [&](const Command& command) { return command.name == arguments[0] && !command.alone; });
}

}  // namespace kozero::program
