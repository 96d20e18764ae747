// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>

#include <kozero/core/error.hpp>
#include <kozero/dist/communicator.hpp>
#include "io/checkpoint/inspection.hpp"
#include "io/posix/readable.hpp"
#include "src/commands/arguments.hpp"
#include "src/commands/inspected.hpp"
#include "src/commands/session.hpp"

namespace kozero::commands {
namespace {

using Json = nlohmann::ordered_json;

struct InspectArguments {
  std::string path;
  std::string other;
  std::string pattern;
  bool stats = false;
  bool verify = false;
  JsonOutput json;
};

InspectArguments parsed(const Arguments& arguments) {
  OptionParser parser("inspect");
  InspectArguments given;
  parser.add("checkpoint", given.path).required();
  parser.add("--tensors", given.pattern, "only tensors whose names fit, as '*wte*'").type_name("PATTERN");
  const Option stats = parser.add_flag("--stats", given.stats, "norm, extremes and non-finite values of each tensor");
  const Option verify = parser.add_flag("--verify", given.verify, "compare every byte with the manifest or header");
  parser
      .add("--diff", given.other,
           "the first difference of each tensor from OTHER's; status 0 where all are equal in bits, 1 where one "
           "differs")
      .type_name("OTHER")
      .excludes(stats)
      .excludes(verify);
  given.json.add_to(parser);
  parser.parse(arguments);
  return given;
}

std::string record_lines(const Inspected& inspected) {
  const io::CheckpointRecord& record = inspected.record;
  const char* kind = inspected.manifest ? "checkpoint   " : "weights file ";
  std::string lines =
      fmt::format("{}{}\nstep         {}, {} tokens\n", kind, inspected.path, record.step, record.tokens);
  if (!inspected.manifest) return lines + fmt::format("model        {}\n", record.model);
  lines += fmt::format("data         seed {}, global batch {}, {} samples, next step {}\n", record.seed,
                       record.global_batch, record.num_samples, record.step + 1);
  lines += fmt::format("tokenizer    {}\nmodel        {}\n", record.tokenizer, record.model);
  if (const auto& scale = record.loss_scale) {
    lines += fmt::format("loss scale   {:.0f}, {} good steps in a row\n", scale->scale, scale->good_steps);
  }
  if (record.validation_loss) lines += fmt::format("validation   {:.4f}\n", *record.validation_loss);
  const Json made = record.provenance.empty() ? Json::object() : Json::parse(record.provenance);
  for (const auto& [name, value] : made.items()) {
    lines += fmt::format("{:<12} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  for (const auto& [name, hashes] : inspected.manifest->files) {
    lines +=
        fmt::format("file         {}, {}, {} blocks\n", name, io::readable_bytes(hashes.size), hashes.blocks.size());
  }
  return lines;
}

Json record_json(const Inspected& inspected) {
  const io::CheckpointRecord& record = inspected.record;
  Json json = {{"path", inspected.path}, {"step", record.step}, {"tokens", record.tokens}};
  json["model"] = Json::parse(record.model, nullptr, /*allow_exceptions=*/false);
  if (!inspected.manifest) return json;
  json["data"] = {{"seed", record.seed},
                  {"global_batch", record.global_batch},
                  {"num_samples", record.num_samples},
                  {"next_step", record.step + 1}};
  if (const auto& scale = record.loss_scale) {
    json["loss_scale"] = {{"scale", scale->scale}, {"good_steps", scale->good_steps}};
  }
  if (record.validation_loss) json["validation_loss"] = *record.validation_loss;
  if (!record.provenance.empty()) json["provenance"] = Json::parse(record.provenance);
  json["tokenizer"] = record.tokenizer;
  json["deck"] = record.deck;
  return json;
}

std::string statistics_text(const io::TensorStatistics& stats) {
  const auto text = [&](double value) { return stats.min <= stats.max ? fmt::format("{:.6g}", value) : "-"; };
  return fmt::format("  norm {:.6g}  min {}  max {}  non-finite {}", stats.norm, text(stats.min), text(stats.max),
                     stats.non_finite);
}

Json tensor_json(const io::ListedTensor& tensor, const io::TensorStatistics* stats) {
  Json json = {{"name", tensor.name}, {"dtype", "f32"}, {"shape", tensor.shape}};
  if (stats == nullptr) return json;
  const bool any = stats->min <= stats->max;
  json["norm"] = stats->norm;
  json["min"] = any ? Json(stats->min) : Json();
  json["max"] = any ? Json(stats->max) : Json();
  json["non_finite"] = stats->non_finite;
  return json;
}

std::vector<io::ListedTensor> chosen(const std::vector<io::ListedTensor>& tensors, const InspectArguments& given) {
  auto some = io::chosen_tensors(tensors, given.pattern);
  if (!some.empty()) return some;
  throw Error(Failure::deck, "--tensors " + given.pattern + ": fits no tensor; names are like " + tensors.front().name);
}

void say_difference(const InspectArguments& given, const Inspected& a, const Inspected& b, Session& session) {
  Comparison found = compared(a, b, given.pattern, session.control());
  if (session.is_first_rank()) {
    for (const auto& line : found.lines) std::cout << line << "\n";
    if (found.different == 0) std::cout << fmt::format("no difference in {} tensors\n", found.tensors);
    found.json["different"] = found.different;
    std::cout << std::flush;
    given.json.print(found.json);
  }
  if (found.different == 0) return;
  throw Error(Failure::internal,  // whose status is that of cmp and diff where files differ
              fmt::format("{} and {} differ in {} of {} tensors", a.path, b.path, found.different, found.tensors),
              Error::Seen::by_all_ranks);
}

void say_contents(const InspectArguments& given, const Inspected& subject, Session& session) {
  std::vector<io::ListedTensor> tensors;
  std::vector<io::TensorStatistics> stats;
  if (given.stats || !subject.manifest) {
    const io::Hdf5File file = opened(subject, session.control());
    tensors = dist::agreed(session.control(), [&] { return chosen(io::list_tensors(file), given); });
    if (given.stats) stats = io::statistics_of(session.control(), file, tensors);
  } else {
    tensors = dist::agreed(session.control(), [&] { return chosen(tensors_of(subject), given); });
  }
  if (!session.is_first_rank()) return;
  std::cout << record_lines(subject) << "\n";
  if (!given.stats && given.pattern.empty() && subject.manifest) std::cout << subject.record.deck << "\n";
  Json json = record_json(subject);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::cout << fmt::format("{}  f32  ({}){}\n", tensors[i].name, fmt::join(tensors[i].shape, ", "),
                             given.stats ? statistics_text(stats[i]) : "");
    json["tensors"].push_back(tensor_json(tensors[i], given.stats ? &stats[i] : nullptr));
  }
  std::cout << std::flush;
  given.json.print(json);
}

}  // namespace

void inspect(const dist::Environment& environment, const Arguments& arguments) {
  const InspectArguments given = parsed(arguments);
  Inspected subject;
  Inspected other;
  Session session(environment, [&](dist::Communicator& comm) {
    subject = find_inspected(given.path, comm);
    if (!given.other.empty()) other = find_inspected(given.other, comm);
    return io::Deck();
  });
  if (!given.other.empty()) return say_difference(given, subject, other, session);
  if (!given.verify) return say_contents(given, subject, session);
  const std::string line = verified(subject, session.control());
  if (!session.is_first_rank()) return;
  std::cout << line << std::endl;
  given.json.print({{"path", subject.path}, {"verified", true}});
}

}  // namespace kozero::commands
