// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// inspect.cpp: the command `inspect`: the contents of a checkpoint or weights file, whether its bytes are intact, and
// the differences of two of them. The record and tensor list of a checkpoint come from its manifest, the record of a
// weights file from its header. A file is opened only after its bytes were compared with manifest or header.
//   inspect --diff: differences of the records; tensors that one file lacks; for each tensor that differs, the first
//   element that differs, both values, the number of different elements and the largest difference
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <kozero/commands/commands.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/model/model.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/program/arguments.hpp>
#include <kozero/run/adapters.hpp>
#include <kozero/run/session.hpp>
#include <kozero/train/run_files.hpp>
#include <kozero/train/settings.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/inspection.hpp"
#include "io/checkpoint/tensor_groups.hpp"
#include "io/deck/deck.hpp"
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/metrics.hpp"
#include "io/run/run_folder.hpp"

namespace kozero::commands {

using program::JsonOutput;
using program::Option;
using program::OptionParser;
using run::Session;

namespace {

struct Comparison {
  std::vector<std::string> lines;
  nlohmann::ordered_json json;
  std::int64_t tensors = 0;    ///< in either file
  std::int64_t different = 0;  ///< differ in bits, shape or presence; records do not count
};

/// The checkpoint or weights file that the path names.
std::string subject_of(const std::string& given) {
  using Kind = train::NamedPath::Kind;
  const train::NamedPath named = train::named_path(given);
  if (named.kind == Kind::checkpoint || named.kind == Kind::weights_file) return named.path;
  const std::string checkpoint = named.kind == Kind::run ? train::newest_checkpoint(named.path) : "";
  if (!checkpoint.empty()) return checkpoint;
  const std::string weights = named.path + "/" + train::kWeightsFile;
  if (io::is_there(weights)) return weights;
  throw Error(Failure::deck, given +
                                 ": nothing to inspect; accepted are a checkpoint (step_...), a run's folder that "
                                 "has one, a weights file");
}

/// Rows and optimizer states of a deck, from the constructors that training runs, without memory for them.
std::vector<io::ListedTensor> by_deck(const io::Deck& deck) {
  const plan::PlannedEngine engine(train::settings_of(deck, 1, 0, 0));
  std::vector<std::string> groups = {"/parameters"};
  for (const auto& state : engine->optimizer_states()) groups.push_back("/optimizer/" + state.name);
  std::sort(groups.begin() + 1, groups.end());
  std::vector<io::ListedTensor> tensors;
  for (const auto& group : groups) {
    const auto first = static_cast<std::ptrdiff_t>(tensors.size());
    for (const auto& tensor : io::tensors_of(group.substr(1), engine->parameters())) {
      tensors.push_back({"/" + tensor.name, tensor.shape});
    }
    std::sort(tensors.begin() + first, tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  return tensors;
}

io::SavedState find_inspected(const std::string& path, distributed::Communicator& comm) {
  io::SavedState found;
  std::string subject;
  const auto find = [&] {
    subject = distributed::from_first_rank(
        comm, [&] { return train::find_beside_trainer(path, [&] { return subject_of(path); }); });
  };
  find();
  train::read_newest(
      comm, path, [&] { return subject; }, [&] { found = io::read_saved_state(comm, subject); }, find);
  return found;
}

std::vector<io::ListedTensor> tensors_of(const io::SavedState& inspected) {
  return by_deck(io::parse_deck(inspected.manifest.record.deck, inspected.path + "/" + io::kManifestFile));
}

std::string verified(const io::SavedState& inspected, distributed::Communicator& comm) {
  const io::Manifest manifest = io::verify(comm, inspected.path).manifest;
  if (!inspected.is_checkpoint) return fmt::format("verified     {}: every byte is as it was written", inspected.path);
  std::int64_t bytes = 0;
  for (const auto& [name, hashes] : manifest.files) bytes += hashes.size;
  return fmt::format("verified     {}: every byte of {} files, {}, is as it was written", inspected.path,
                     manifest.files.size(), io::readable_bytes(bytes));
}

io::Hdf5File opened(const io::SavedState& inspected, distributed::Communicator& comm) {
  const std::string file = io::verify(comm, inspected.path).state_file();
  return distributed::agreed(comm, [&] { return io::Hdf5File(file, io::Hdf5Access::read); });
}

/// The fields of a record by name.
std::map<std::string, std::string> fields_of(const io::SavedState& inspected) {
  const io::CheckpointRecord& record = inspected.manifest.record;
  std::map<std::string, std::string> fields = {{"step", std::to_string(record.step)},
                                               {"tokens", std::to_string(record.tokens)}};
  const auto model = nlohmann::json::parse(record.model, nullptr, /*allow_exceptions=*/false);
  for (const auto& [key, value] : model.items()) fields["model " + key] = value.dump();
  if (!inspected.is_checkpoint) return fields;
  fields["optimizer start"] = std::to_string(record.optimizer_start);
  fields["data seed"] = std::to_string(record.seed);
  fields["data global batch"] = std::to_string(record.global_batch);
  fields["data samples"] = std::to_string(record.num_samples);
  fields["tokenizer"] = record.tokenizer;
  if (const auto& scale = record.loss_scale) {
    fields["loss scale"] = fmt::format("{:.0f}", scale->scale);
    fields["loss scale good steps"] = std::to_string(scale->good_steps);
  }
  std::istringstream keys(io::fingerprint(io::parse_deck(record.deck, inspected.path + "/" + io::kManifestFile)));
  for (std::string line; std::getline(keys, line);) {
    const auto colon = line.find(": ");
    fields["deck " + line.substr(0, colon)] = line.substr(colon + 2);
  }
  return fields;
}

void compare_records(const io::SavedState& a, const io::SavedState& b, Comparison& all) {
  const auto fields_a = fields_of(a);
  const auto fields_b = fields_of(b);
  all.json["record"] = nlohmann::ordered_json::object();
  for (const auto& [field, value] : fields_a) {
    const auto other = fields_b.find(field);
    if (other == fields_b.end() || other->second == value) continue;
    all.lines.push_back(fmt::format("{}: {} and {}", field, value, other->second));
    all.json["record"][field] = {value, other->second};
  }
}

/// The shortest digits that read back as the same value; for a NaN its bits.
std::string digits_of(float value) {
  if (!std::isnan(value)) return fmt::format("{}", value);
  return fmt::format("nan ({:#010x})", std::bit_cast<std::uint32_t>(value));
}

void add_missing(const io::ListedTensor& tensor, const std::string& holder, Comparison& all) {
  ++all.different;
  all.lines.push_back(fmt::format("{}: only in {}", tensor.name, holder));
  all.json["tensors"].push_back({{"name", tensor.name}, {"only_in", holder}});
}

void add_shapes(const io::ListedTensor& a, const io::ListedTensor& b, Comparison& all) {
  ++all.different;
  all.lines.push_back(
      fmt::format("{}: shape ({}) and ({})", a.name, fmt::join(a.shape, ", "), fmt::join(b.shape, ", ")));
  all.json["tensors"].push_back({{"name", a.name}, {"shapes", {a.shape, b.shape}}});
}

void add_values(const io::ListedTensor& tensor, const io::TensorDifference& found, Comparison& all) {
  if (found.count == 0) return;
  ++all.different;
  const auto index = io::index_of(found.first, tensor.shape);
  all.lines.push_back(fmt::format("{}: first at ({}): {} and {}; {} of {} differ, by at most {}", tensor.name,
                                  fmt::join(index, ", "), digits_of(found.a), digits_of(found.b), found.count,
                                  tensor.extent(), found.largest));
  all.json["tensors"].push_back({{"name", tensor.name},
                                 {"first", index},
                                 {"values", {digits_of(found.a), digits_of(found.b)}},
                                 {"count", found.count},
                                 {"largest", found.largest}});
}

Comparison compared(const io::SavedState& a, const io::SavedState& b, const std::string& pattern,
                    distributed::Communicator& comm) {
  Comparison all;
  distributed::agreed(comm, [&] { compare_records(a, b, all); });
  all.json["tensors"] = nlohmann::ordered_json::array();
  const io::Hdf5File file_a = opened(a, comm);
  const io::Hdf5File file_b = opened(b, comm);
  const auto tensors_a =
      distributed::agreed(comm, [&] { return io::chosen_tensors(io::list_tensors(file_a), pattern); });
  const auto tensors_b =
      distributed::agreed(comm, [&] { return io::chosen_tensors(io::list_tensors(file_b), pattern); });
  std::map<std::string, io::ListedTensor> others;
  for (const auto& tensor : tensors_b) others[tensor.name] = tensor;
  std::vector<io::ListedTensor> in_both;
  for (const auto& tensor : tensors_a) {
    ++all.tensors;
    const auto other = others.find(tensor.name);
    if (other == others.end()) {
      add_missing(tensor, a.path, all);
      continue;
    }
    if (other->second.shape == tensor.shape) in_both.push_back(tensor);
    if (other->second.shape != tensor.shape) add_shapes(tensor, other->second, all);
    others.erase(other);
  }
  for (const auto& [name, tensor] : others) {
    ++all.tensors;
    add_missing(tensor, b.path, all);
  }
  const auto found = io::differences_of(comm, file_a, file_b, in_both);
  for (std::size_t i = 0; i < in_both.size(); ++i) add_values(in_both[i], found[i], all);
  return all;
}

using Json = nlohmann::ordered_json;

struct InspectArguments {
  std::string path;
  std::string other;
  std::string pattern;
  std::string adapter;
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
  const Option other = parser
                           .add("--diff", given.other,
                                "the first difference of each tensor from OTHER's; status 0 if all are equal in bits, "
                                "1 if one differs")
                           .type_name("OTHER")
                           .excludes(stats)
                           .excludes(verify);
  parser.add("--adapter", given.adapter, "compare a PEFT folder with the base that the first path names, and show it")
      .type_name("FOLDER")
      .excludes(stats)
      .excludes(verify)
      .excludes(other);
  given.json.add_to(parser);
  parser.parse(arguments);
  return given;
}

std::string record_lines(const io::SavedState& inspected) {
  const io::CheckpointRecord& record = inspected.manifest.record;
  const char* kind = inspected.is_checkpoint ? "checkpoint   " : "weights file ";
  std::string lines =
      fmt::format("{}{}\nstep         {}, {} tokens\n", kind, escaped(inspected.path), record.step, record.tokens);
  if (!record.base.empty()) lines += fmt::format("adapters     of a base with the hash {}\n", record.base);
  if (!inspected.is_checkpoint) return lines + fmt::format("model        {}\n", escaped(record.model));
  lines += fmt::format("data         seed {}, global batch {}, {} samples, next step {}\n", record.seed,
                       record.global_batch, record.num_samples, record.step + 1);
  lines += fmt::format("tokenizer    {}\nmodel        {}\n", escaped(record.tokenizer), escaped(record.model));
  if (const auto& scale = record.loss_scale) {
    lines += fmt::format("loss scale   {:.0f}, {} good steps in a row\n", scale->scale, scale->good_steps);
  }
  if (record.validation_loss) lines += "validation   " + io::loss_text(*record.validation_loss) + "\n";
  const Json made = record.provenance.empty() ? Json::object() : Json::parse(record.provenance);
  for (const auto& [name, value] : made.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    lines += fmt::format("{:<12} {}\n", escaped(name), escaped(text));
  }
  for (const auto& [name, hashes] : inspected.manifest.files) {
    lines +=
        fmt::format("file         {}, {}, {} blocks\n", name, io::readable_bytes(hashes.size), hashes.blocks.size());
  }
  return lines;
}

Json record_json(const io::SavedState& inspected) {
  const io::CheckpointRecord& record = inspected.manifest.record;
  Json json = {{"path", inspected.path}, {"step", record.step}, {"tokens", record.tokens}};
  json["model"] = Json::parse(record.model, nullptr, /*allow_exceptions=*/false);
  if (!record.base.empty()) json["base"] = record.base;
  if (!inspected.is_checkpoint) return json;
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

void say_difference(const InspectArguments& given, const io::SavedState& a, const io::SavedState& b, Session& session) {
  Comparison found = compared(a, b, given.pattern, session.control());
  if (session.is_first_rank()) {
    for (const auto& line : found.lines) std::cout << escaped(line) << "\n";
    if (found.different == 0) std::cout << fmt::format("no difference in {} tensors\n", found.tensors);
    found.json["different"] = found.different;
    std::cout << std::flush;
    given.json.print(found.json);
  }
  if (found.different == 0) return;
  throw Error(Failure::internal,  // status 1, as of cmp and diff if files differ
              fmt::format("{} and {} differ in {} of {} tensors", a.path, b.path, found.different, found.tensors),
              Error::Seen::by_all_ranks);
}

void say_contents(const InspectArguments& given, const io::SavedState& subject, Session& session) {
  std::vector<io::ListedTensor> tensors;
  std::vector<io::TensorStatistics> stats;
  if (given.stats || !subject.is_checkpoint) {
    const io::Hdf5File file = opened(subject, session.control());
    tensors = distributed::agreed(session.control(), [&] { return chosen(io::list_tensors(file), given); });
    if (given.stats) stats = io::statistics_of(session.control(), file, tensors);
  } else {
    tensors = distributed::agreed(session.control(), [&] { return chosen(tensors_of(subject), given); });
  }
  if (!session.is_first_rank()) return;
  std::cout << record_lines(subject) << "\n";
  if (!given.stats && given.pattern.empty() && subject.is_checkpoint)
    std::cout << io::printable(subject.manifest.record.deck) << "\n";
  Json json = record_json(subject);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::cout << fmt::format("{}  f32  ({}){}\n", escaped(tensors[i].name), fmt::join(tensors[i].shape, ", "),
                             given.stats ? statistics_text(stats[i]) : "");
    json["tensors"].push_back(tensor_json(tensors[i], given.stats ? &stats[i] : nullptr));
  }
  std::cout << std::flush;
  given.json.print(json);
}

void say_verified(const InspectArguments& given, const io::SavedState& subject, Session& session) {
  const std::string line = verified(subject, session.control());
  if (!session.is_first_rank()) return;
  std::cout << escaped(line) << std::endl;
  given.json.print({{"path", subject.path}, {"verified", true}});
}

std::vector<io::ListedTensor> adapters_of(const ParameterTable& table) {
  std::vector<io::ListedTensor> tensors;
  for (int i = 0; i < std::ssize(table.tensors()); ++i) {
    const Tensor& tensor = table.tensors()[static_cast<std::size_t>(i)];
    if (!table.is_base(i)) tensors.push_back({tensor.name, tensor.shape});
  }
  return tensors;
}

/// A PEFT folder beside its base.
void inspect_adapter(const InspectArguments& given, const distributed::Environment& environment) {
  run::InspectedAdapters found;
  const Session session(environment, [&](distributed::Communicator& comm) {
    found = run::inspect_adapters(given.adapter, given.path, comm);
    return io::Deck();
  });
  if (!session.is_first_rank()) return;
  const model::Lora& lora = found.config.lora;
  const std::string& identity = found.description.base;
  std::cout << fmt::format("adapters     {}\nrank         {}, alpha {:g}, scale {:g}\ntargets      {}\n",
                           escaped(given.adapter), lora.rank, lora.alpha, lora.scale(),
                           escaped(fmt::format("{}", fmt::join(lora.targets, ", "))));
  std::cout << fmt::format("base         {} ({}), {}\n", escaped(found.base.path), name_of(found.base.kind),
                           identity.empty() ? "of the right shapes; the adapters record no hash of theirs"
                                            : "of the right shapes; theirs has the hash " + identity);
  if (!found.description.note.empty()) std::cout << "note         " << escaped(found.description.note) << "\n";
  Json json = {{"adapters", given.adapter}, {"base", found.base.path}, {"base_hash", identity}};
  json["lora"] = {{"rank", lora.rank}, {"alpha", lora.alpha}, {"scale", lora.scale()}, {"targets", lora.targets}};
  const auto network = model::make_model<float>(found.config);
  for (const io::ListedTensor& tensor : adapters_of(network->parameters())) {
    std::cout << fmt::format("{}  ({})\n", escaped(tensor.name), fmt::join(tensor.shape, ", "));
    json["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  }
  std::cout << std::flush;
  given.json.print(json);
}

}  // namespace

void inspect(const distributed::Environment& environment, const Arguments& arguments) {
  const InspectArguments given = parsed(arguments);
  if (!given.adapter.empty()) return inspect_adapter(given, environment);
  io::SavedState subject;
  io::SavedState other;
  Session session(environment, [&](distributed::Communicator& comm) {
    subject = find_inspected(given.path, comm);
    if (!given.other.empty()) other = find_inspected(given.other, comm);
    return io::Deck();
  });
  const auto say = [&] {
    if (!given.other.empty()) return say_difference(given, subject, other, session);
    return given.verify ? say_verified(given, subject, session) : say_contents(given, subject, session);
  };
  const auto read = [&] {
    train::read_newest(
        session.control(), given.path, [&] { return subject.path; }, say,
        [&] { subject = find_inspected(given.path, session.control()); });
  };
  if (given.other.empty()) return read();
  train::read_newest(
      session.control(), given.other, [&] { return other.path; }, read,
      [&] { other = find_inspected(given.other, session.control()); });
}

}  // namespace kozero::commands
