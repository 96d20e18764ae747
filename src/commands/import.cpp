// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// import.cpp: the command `import`: a Hugging Face folder as a run's folder with weights.h5 and a deck.
#include <fmt/format.h>
#include <iostream>
#include <string>
#include <vector>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/ledger.hpp>
#include <kozero/huggingface/import.hpp>
#include <kozero/model/model.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/evaluation_text.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/runtime.hpp>

namespace kozero::commands {

using program::OptionParser;

void import_weights(const distributed::Environment& environment, const Arguments& arguments) {
  OptionParser parser("import");
  huggingface::ImportOrder order;
  parser.add("folder", order.folder).required();
  parser.add("out", order.out).required();
  parser.parse(arguments);
  if (environment.size() > 1) {
    throw Error(Failure::deck, "import runs on one rank: start it without -n", Error::Seen::by_all_ranks);
  }
  const train::Runtime runtime(1, environment);
  std::vector<std::string> notes;
  order.config = huggingface::read_folder_config(order.folder, &notes);
  order.description = train::model_json(order.config);
  const auto model = model::make_model<float>(order.config);
  const auto made = huggingface::import_folder(order, model->parameters());
  std::cout << fmt::format("{}: {}, {} tensors of {} read, {:.1f} MiB of f32 written\n", escaped(order.out),
                           order.config.arch, made.tensors, made.dtypes, static_cast<double>(made.bytes) / kMiB);
  if (!made.remark.empty()) notes.push_back(made.remark);
  for (const auto& note : notes) std::cout << "note: " << escaped(note) << "\n";
}

}  // namespace kozero::commands
