// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <iostream>

#include <fmt/format.h>

#include <kozero/core/error.hpp>
#include <kozero/exchange/export_folder.hpp>
#include <kozero/train/trained_weights.hpp>

#include "banner.hpp"
#include "deck_arguments.hpp"
#include "session.hpp"

namespace kozero::commands {

void export_weights(const dist::Environment& environment, const Arguments& arguments) {
  CLI::App app("DECK | RUN | WEIGHTS OUT [--max-shard-mib N]", "export");
  std::string path;
  exchange::ExportOrder order;
  double shard_mib = 0.0;
  app.add_option("path", path)->required();
  app.add_option("out", order.out)->required();
  app.add_option("--max-shard-mib", shard_mib)->check(CLI::Range(1e-6, 1e9));
  parse(app, arguments);
  if (environment.size() > 1) {
    throw Error(Failure::deck, "export runs on one rank: start it without -n", Error::Seen::by_all_ranks);
  }
  train::TrainedRun run;
  const Session session(environment, [&] { return (run = train::find_run(path, {})).deck; });
  order.weights = run.weights;
  order.tokenizer = run.tokenizer;
  order.config = train::model_config(run.deck, 0);
  order.max_shard_bytes = static_cast<std::int64_t>(std::ceil(shard_mib * kMiB));
  const auto model = model::make_model<float>(order.config);
  const auto made = exchange::export_folder(order, model->parameters());
  std::cout << fmt::format("{}: {} tensors, {:.1f} MiB of f32 in {} file{}, {} for transformers\n", order.out,
                           made.tensors, static_cast<double>(made.bytes) / kMiB, made.files,
                           made.files == 1 ? "" : "s", order.config.arch);
  if (!made.remark.empty()) std::cout << "note: " << made.remark << "\n";
}

}  // namespace kozero::commands
