// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// fat_binary.cpp: finds PTX in a fat binary, which is a header and entries, each a header and PTX or machine code. nvcc
// does not document the format; the fields below are those seen in its output.
#include "fat_binary.hpp"

#include <zstd.h>

#include <cstring>
#include <map>

#include "report.hpp"

struct dim3;
struct uint3;

namespace kozero::gpu_emulator {
namespace {

struct Wrapper {
  std::uint32_t magic, version;
  const void* data;
};
struct Header {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;
};
struct Entry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
  std::uint32_t packed_bytes, unknown;
  std::uint16_t minor, major;
  std::uint32_t architecture, name_at, name_bytes;
  std::uint64_t flags, zero, unpacked_bytes;
};
constexpr std::uint32_t kWrapperMagic = 0x466243B1, kMagic = 0xBA55ED50;
constexpr std::uint16_t kPtx = 1;
constexpr std::uint64_t kZstd = 0x8000;

std::string unpacked(const Entry& entry) {
  const auto* const begin = reinterpret_cast<const char*>(&entry) + entry.header_bytes;
  if ((entry.flags & kZstd) == 0) {
    if (entry.unpacked_bytes != 0) stop("PTX is packed by other means than zstd; compile with nvcc 12.4 or newer");
    return {begin, entry.bytes};
  }
  std::string text(entry.unpacked_bytes, '\0');
  const std::size_t bytes = ZSTD_decompress(text.data(), text.size(), begin, entry.packed_bytes);
  if (ZSTD_isError(bytes)) stop(std::string("PTX cannot be unpacked: ") + ZSTD_getErrorName(bytes));
  return text;
}

std::string newest_ptx(const void* data) {
  const auto* const header = static_cast<const Header*>(data);
  if (header->magic != kMagic) stop("a program registers a fat binary of an unknown form");
  const auto* at = static_cast<const char*>(data) + header->header_bytes;
  const auto* const end = at + header->bytes;
  const Entry* best = nullptr;
  while (at < end) {
    const auto* const entry = reinterpret_cast<const Entry*>(at);
    if (entry->kind == kPtx && entry->architecture <= static_cast<std::uint32_t>(options().capability) &&
        (best == nullptr || entry->architecture > best->architecture)) {
      best = entry;
    }
    at += entry->header_bytes + entry->bytes;
  }
  if (best == nullptr)
    stop("the program has no PTX for compute capability " + std::to_string(options().capability) +
         "; compile with code=compute_80 too");
  std::string text = unpacked(*best);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

struct Registry {
  std::mutex mutex;
  std::map<const void*, Registered> kernels;
  std::map<const void*, std::pair<FatBinary*, std::string>> variables;
};
Registry& registry() {
  static auto* const registry = new Registry;
  return *registry;
}

}  // namespace

Module& FatBinary::module() {
  std::call_once(once_, [this] { module_ = std::make_unique<Module>(newest_ptx(data_)); });
  return *module_;
}

const Code& code_of(Registered& kernel) {
  const std::lock_guard lock(registry().mutex);
  if (kernel.code == nullptr) kernel.code = &kernel.binary->module().kernel(kernel.name);
  return *kernel.code;
}

Registered* registered(const void* function) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().kernels.find(function);
  return found == registry().kernels.end() ? nullptr : &found->second;
}

Address variable_of(const void* host_variable) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().variables.find(host_variable);
  if (found == registry().variables.end()) stop("a copy to a variable that is not registered");
  return found->second.first->module().variable(found->second.second);
}

}  // namespace kozero::gpu_emulator

using namespace kozero::gpu_emulator;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  const auto* const wrapped = static_cast<const Wrapper*>(wrapper);
  if (wrapped->magic != kWrapperMagic) stop("a program registers a fat binary of an unknown form");
  return reinterpret_cast<void**>(new FatBinary(wrapped->data));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  const std::lock_guard lock(registry().mutex);
  registry().kernels[host] = {reinterpret_cast<FatBinary*>(binary), name};
}
void __cudaRegisterVar(void** binary, char* host, char*, const char* name, int, std::size_t, int, int) {
  const std::lock_guard lock(registry().mutex);
  registry().variables[host] = {reinterpret_cast<FatBinary*>(binary), name};
}

}  // extern "C"
