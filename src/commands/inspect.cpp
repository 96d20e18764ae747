// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <kozero/dist/agreed.hpp>
#include <kozero/io/checkpoint.hpp>
#include <kozero/io/hdf5_file.hpp>
#include <kozero/io/readable.hpp>

#include "deck_arguments.hpp"
#include "session.hpp"

namespace kozero::commands {
namespace {

std::string record_lines(const std::string& path, const io::Manifest& manifest) {
  const io::CheckpointRecord& record = manifest.record;
  std::string lines = fmt::format("checkpoint   {}\nstep         {}, {} tokens\n", path, record.step, record.tokens);
  lines += fmt::format("data         seed {}, global batch {}, {} samples, next step {}\n", record.seed,
                       record.global_batch, record.num_samples, record.step + 1);
  lines += fmt::format("tokenizer    {}\nmodel        {}\n", record.tokenizer, record.model);
  for (const auto& [name, hashes] : manifest.files) {
    lines += fmt::format("file         {}, {}, {} blocks\n", name, io::readable_bytes(hashes.size), hashes.blocks.size());
  }
  return lines;
}

void print_tensors(const io::Hdf5File& file, const std::string& group) {
  for (const auto& name : file.names(group)) {
    const auto dataset = file.open_dataset(group + "/" + name);
    std::cout << fmt::format("{}/{}  f32  ({})\n", group, name, fmt::join(dataset.shape(), ", "));
  }
}

void print_all(const std::string& folder, const io::Manifest& manifest) {
  std::cout << "\n" << manifest.record.deck << "\n";
  const io::Hdf5File file(folder + "/" + io::kStateFile, io::Hdf5Access::read, nullptr);
  print_tensors(file, "/parameters");
  if (!file.has_group("optimizer")) return;
  for (const auto& state : file.names("/optimizer")) print_tensors(file, "/optimizer/" + state);
}

}  // namespace

void inspect(const dist::Environment& environment, const Arguments& arguments) {
  CLI::App app("CHECKPOINT [--verify]", "inspect");
  std::string folder;
  bool only_verifies = false;
  app.add_option("checkpoint", folder)->required();
  app.add_flag("--verify", only_verifies);
  parse(app, arguments);

  Session session(environment, [&] { return io::parse_deck(io::read_manifest(folder).record.deck, folder); });
  const io::Manifest manifest = io::verify_checkpoint(session.control(), folder);
  if (!session.is_first_rank()) return;
  std::cout << record_lines(folder, manifest) << "verified     every byte is as it was written\n";
  if (!only_verifies) print_all(folder, manifest);
  std::cout << std::flush;
}

}  // namespace kozero::commands
