// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/io/deck.hpp>
#include <kozero/io/deck_refusal.hpp>

#include "device_handover.hpp"

namespace kozero::commands {
namespace {

namespace fs = std::filesystem;

constexpr bool kOnHost = std::is_same_v<Device, Host>;
constexpr const char* kProgram = "kozero-cuda";

fs::path folder_of_this_program() {
  std::error_code problem;
  return fs::read_symlink("/proc/self/exe", problem).parent_path();
}

/// kozero-cuda beside this program, or where its preset builds it; empty where it is not.
fs::path cuda_program() {
  const fs::path here = folder_of_this_program();
  for (const auto& path : {here / kProgram, here.parent_path() / "cuda" / kProgram}) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

/// Why the driver offers no GPU; "" where it does. CUDA_VISIBLE_DEVICES counts.
std::string gpu_obstacle() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return "no NVIDIA driver is here (libcuda.so.1 does not open)";
  using Init = int (*)(unsigned);
  using Count = int (*)(int*);
  const auto init = reinterpret_cast<Init>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<Count>(dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  if (init == nullptr || count == nullptr) return "libcuda.so.1 is not NVIDIA's driver";
  if (const int status = init(0); status != 0)
    return "the NVIDIA driver offers no GPU (cuInit: " + std::to_string(status) + ")";
  if (count(&devices) != 0 || devices == 0) return "the NVIDIA driver offers no GPU (CUDA_VISIBLE_DEVICES?)";
  return "";
}

std::string missing_program() {
  return std::string(kProgram) + " is not beside this program: `./kozero.sh --preset cuda build` makes it";
}

/// run.device as the arguments of a command say it. What cannot be read here is refused later, by the host's program.
std::string device_asked(const Arguments& arguments) {
  const std::string key = "run.device=";
  const auto given = std::find_if(arguments.rbegin(), arguments.rend(),
                                  [&](const std::string& each) { return each.starts_with(key); });
  if (given != arguments.rend()) return given->substr(key.size());
  const auto deck = std::find_if(arguments.begin() + 1, arguments.end(), [](const std::string& each) {
    std::error_code ignored;  // an override may be no possible path
    return fs::is_regular_file(each, ignored);
  });
  if (deck == arguments.end() || fs::path(*deck).extension() != ".toml") return "auto";
  try {
    return io::read_deck(*deck).run.device;
  } catch (const Error&) {
    return "host";
  }
}

bool computes(const Arguments& arguments) {
  if (arguments.empty()) return false;
  const auto& all = all_commands();
  const auto command =
      std::find_if(all.begin(), all.end(), [&](const Command& each) { return each.name == arguments[0]; });
  return command != all.end() && command->computes;
}

}  // namespace

const char* device_of_this_program() { return kOnHost ? "host" : "cuda"; }

void hand_over(char** argv) {
  Arguments arguments;
  for (char** each = argv + 1; *each != nullptr; ++each) arguments.emplace_back(*each);
  if (!kOnHost || !computes(arguments)) return;
  const std::string device = device_asked(arguments);
  const fs::path program = device == "auto" || device == "cuda" ? cuda_program() : fs::path();
  if (!program.empty() && gpu_obstacle().empty()) execv(program.c_str(), argv);
}

void require_gpu() {
  const std::string obstacle = kOnHost ? "" : gpu_obstacle();
  if (obstacle.empty()) return;
  throw Error(Failure::deck, std::string(kProgram) + " needs a GPU: " + obstacle + "; kozero computes on the host");
}

void require_device(const io::Deck& deck) {
  if (!kOnHost && deck.run.device == "host") {
    io::refuse_value(deck, "run.device", std::string("this is ") + kProgram + "; run kozero instead");
  }
  if (kOnHost && deck.run.products == "tf32") {
    io::refuse_value(deck, "run.products", "TF32 is of GPUs; accepted on the host are \"fastest\", \"library\"");
  }
  if (!kOnHost || deck.run.device != "cuda") return;
  const std::string reason = cuda_program().empty() ? missing_program() : gpu_obstacle();
  io::refuse_value(
      deck, "run.device",
      (reason.empty() ? std::string(kProgram) + " does not start" : reason) + "; accepted here are \"auto\", \"host\"");
}

io::Deck without_device(io::Deck deck) {
  deck.run.device = "auto";
  if (deck.run.products == "tf32") deck.run.products = "fastest";
  deck.run.tuning = "none";
  return deck;
}

std::string note_on_device(const io::Deck& deck) {
  if (!kOnHost || deck.run.device != "auto" || !cuda_program().empty() || !gpu_obstacle().empty()) return "";
  return "a GPU is here and run.device = \"auto\", but " + missing_program();
}

}  // namespace kozero::commands
