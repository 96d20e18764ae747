// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// device_choice.cpp: finds kozero-cuda and a usable GPU, and the errors and notes for run.device and run.products.
#include <unistd.h>
#include <cstdio>
#include <cstdlib>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/run/device_choice.hpp>
#include "build_facts.hpp"
#include "io/deck/check.hpp"
#include "src/run/gpu_driver.hpp"

namespace kozero::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "kozero-cuda";

/// kozero-cuda beside this program, or where its preset builds it; empty if it is not there.
fs::path cuda_program() {
  const fs::path here = this_program().parent_path();
  for (const auto& path : {here / kProgram, here.parent_path() / "cuda" / kProgram}) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

CudaBuild this_build() {
  if (kHostIsDevice) return {};
  int major = 0, minor = 0;
  std::sscanf(build_facts::kCuda, "%d.%d", &major, &minor);
  return {std::atoi(build_facts::kArchitecture), 1000 * major + 10 * minor};
}

std::string gpu_unavailable_reason() { return gpu_driver().unavailable_reason; }

std::string missing_program() {
  return std::string(kProgram) + " is not beside this program: `./kozero.sh --preset cuda build` makes it";
}

}  // namespace

const char* device_of_this_program() { return kHostIsDevice ? "host" : "cuda"; }

fs::path this_program() {
  std::error_code problem;
  return fs::read_symlink("/proc/self/exe", problem);
}

fs::path usable_cuda_program() {
  const fs::path program = cuda_program();
  return !program.empty() && gpu_unavailable_reason().empty() ? program : fs::path();
}

void require_gpu() {
  const std::string reason = kHostIsDevice ? "" : unsuitable_reason(gpu_driver(), this_build());
  if (reason.empty()) return;
  throw Error(Failure::deck, std::string(kProgram) + " needs a GPU: " + reason + "; kozero computes on the host");
}

void require_device(const io::Deck& deck) {
  if (!kHostIsDevice && deck.run.device == "host") {
    io::refuse_value(deck, "run.device", std::string("this is ") + kProgram + "; run kozero instead");
  }
  if (kHostIsDevice && deck.run.products == "tf32") {
    io::refuse_value(deck, "run.products", "TF32 is of GPUs; accepted on the host are \"fastest\", \"portable\"");
  }
  if (!kHostIsDevice || deck.run.device != "cuda") return;
  const std::string reason = cuda_program().empty() ? missing_program() : gpu_unavailable_reason();
  io::refuse_value(
      deck, "run.device",
      (reason.empty() ? std::string(kProgram) + " does not start" : reason) + "; accepted here are \"auto\", \"host\"");
}

io::Deck without_device(io::Deck deck) {
  deck.run.device = "auto";
  if (deck.run.products == "tf32") deck.run.products = "fastest";
  deck.run.tuning = "none";
  const char* const of_other = kHostIsDevice && !deck.plans_for_gpus ? "host" : "disk";
  for (std::string* where : {&deck.zero.offload_optimizer, &deck.zero.offload_parameters}) {
    if (*where == of_other) *where = "none";
  }
  return deck;
}

std::string note_on_device(const io::Deck& deck) {
  if (!kHostIsDevice) return note_on_architecture(gpu_driver(), this_build());
  if (deck.run.device != "auto" || !cuda_program().empty() || !gpu_unavailable_reason().empty()) return "";
  return "a GPU is here and run.device = \"auto\", but " + missing_program();
}

}  // namespace kozero::run
