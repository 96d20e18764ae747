// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// export.cpp: the command `export`: trained weights as a Hugging Face folder or as one HDF5 weights file, and trained
// adapters as a PEFT folder or merged with their base.
#include <fmt/format.h>
#include <iostream>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/huggingface/adapters.hpp>
#include <kozero/huggingface/export.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/adapters.hpp>
#include <kozero/run/evaluation_text.hpp>
#include <kozero/run/session.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/settings.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/run/run_folder.hpp"

namespace kozero::commands {

using program::Option;
using program::OptionParser;
using run::Session;
using run::WeightsSource;

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  // of a file

struct ExportArguments {
  std::string path;
  huggingface::ExportOrder order;
  bool weights_only = false;
  bool best = false;
  bool adapter = false;
  bool merge = false;
  std::string base;  ///< base_model_name_or_path; "": model.init
};

ExportArguments parsed(const Arguments& arguments) {
  OptionParser parser("export");
  ExportArguments given;
  parser.add("path", given.path).required();
  parser.add("out", given.order.out).required();
  const Option dtype = parser.add("--dtype", given.order.dtype, "f32, bf16 or f16").type_name("TYPE");
  const Option shards =
      parser.add("--max-shard-size", given.order.max_shard_bytes, "largest file of weights, such as 5GB or 512MiB")
          .default_text("one file")
          .size(1, kMostBytes);
  parser.add_flag("--weights-only", given.weights_only, "write one plain HDF5 file OUT instead of a folder");
  parser.add_flag("--force", given.order.force, "replace OUT if it is an older export");
  parser.add_flag("--best", given.best, "of a run: its checkpoint with the lowest validation loss");
  const Option adapter =
      parser.add_flag("--adapter", given.adapter, "of a run with model.lora: its adapters, for PEFT");
  const Option merge =
      parser.add_flag("--merge", given.merge, "of a run with model.lora: its base with the adapters added")
          .excludes(adapter);
  const Option base = parser.add("--base", given.base, "name or path by which PEFT finds the adapters' base")
                          .default_text("model.init")
                          .type_name("NAME")
                          .excludes(merge);
  parser.parse(arguments);
  if (base.is_given() && !given.adapter) {
    throw Error(Failure::deck, "--base is written with adapters: give --adapter too", Error::Seen::by_all_ranks);
  }
  if (given.adapter && (given.weights_only || shards.is_given())) {
    throw Error(Failure::deck,
                "--adapter writes one file for PEFT: --weights-only and --max-shard-size are for weights",
                Error::Seen::by_all_ranks);
  }
  if (given.weights_only && (dtype.is_given() || shards.is_given())) {
    throw Error(Failure::deck, "--weights-only writes one file of f32: --dtype and --max-shard-size are for a folder",
                Error::Seen::by_all_ranks);
  }
  return given;
}

void say(const ExportArguments& given, const WeightsSource& source, const huggingface::Exported& made) {
  const auto& order = given.order;
  std::string use = given.weights_only ? "with no tokenizer" : order.config.arch + " for transformers";
  if (given.adapter) use = fmt::format("adapters of rank {} for PEFT", order.config.lora.rank);
  if (given.merge) use = "base and adapters merged, " + use;
  std::cout << fmt::format("{}: {} tensors, {:.1f} MiB of {} in {} file{}, {}\n", escaped(order.out), made.tensors,
                           static_cast<double>(made.bytes) / kMiB, order.dtype, made.files, made.files == 1 ? "" : "s",
                           use);
  std::cout << fmt::format("from {} ({})\n", escaped(source.path), name_of(source.kind));
  for (const auto& note : made.notes) std::cout << "note: " << escaped(note) << "\n";
}

/// Adapters are exported for PEFT or merged; whole weights as they are.
void check_kind(const ExportArguments& given, const WeightsSource& source, const model::Config& config) {
  const bool has_adapters = config.lora.rank > 0;
  if (has_adapters == (given.adapter || given.merge)) return;
  throw Error(Failure::deck,
              has_adapters
                  ? source.path +
                        ": it has adapters alone; export them for PEFT by --adapter, or added to their base "
                        "by --merge"
                  : source.path + ": it has whole weights, no adapters; export it without --adapter and --merge",
              Error::Seen::by_all_ranks);
}

/// Writes what was asked for, from a state that is verified.
huggingface::Exported written(ExportArguments& given, const WeightsSource& source, Session& session) {
  huggingface::ExportOrder& order = given.order;
  if (given.merge) {
    order.merged = run::merged_weights(source, order.weights, session.deck(), session.control());
    order.config.lora = {};
  }
  const auto model = model::make_model<float>(order.config);
  const ParameterTable& table = model->parameters();
  if (!given.adapter) {
    return given.weights_only ? huggingface::export_weights(order, table) : huggingface::export_folder(order, table);
  }
  const std::string& base = session.deck().model.init;
  auto made = huggingface::export_adapters(order, table, {given.base.empty() ? base : given.base, source.base});
  if (given.base.empty() && !io::is_hugging_face_folder(base)) {
    made.notes.push_back("their base " + base +
                         " is no Hugging Face folder, which PEFT needs: export it too, and give its path by --base");
  }
  return made;
}

}  // namespace

void export_weights(const distributed::Environment& environment, const Arguments& arguments) {
  ExportArguments given = parsed(arguments);
  if (environment.size() > 1) {
    throw Error(Failure::deck, "export runs on one rank: start it without -n", Error::Seen::by_all_ranks);
  }
  WeightsSource source;
  const auto find = [&](distributed::Communicator& comm) {
    return run::find_weights(given.path, comm, given.best ? train::Which::best : train::Which::latest);
  };
  Session session(environment, [&](distributed::Communicator& comm) {
    source = find(comm);
    return deck_of(source, {});
  });
  if (source.kind == WeightsSource::Kind::hugging_face) {
    throw Error(Failure::deck, given.path + ": it is a Hugging Face folder; import it first",
                Error::Seen::by_all_ranks);
  }
  huggingface::ExportOrder& order = given.order;
  order.config = train::model_config(session.deck(), 0);
  check_kind(given, source, order.config);
  huggingface::Exported made;
  const auto write = [&] {
    order.weights = io::verify(session.control(), source.path).state_file();
    order.tokenizer = source.tokenizer;
    order.config = train::model_config(session.deck(), 0);
    made = written(given, source, session);
  };
  train::read_newest(
      session.control(), given.path, [&] { return source.path; }, write, [&] { source = find(session.control()); });
  say(given, source, made);
}

}  // namespace kozero::commands
