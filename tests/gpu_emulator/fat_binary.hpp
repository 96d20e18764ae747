// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// fat_binary.hpp: the device code that nvcc put into a program, as the program registers it before main().
#pragma once
#include <memory>
#include <mutex>
#include <string>

#include "code.hpp"

namespace kozero::gpu_emulator {

class FatBinary {
 public:
  explicit FatBinary(const void* data) : data_(data) {}

  /// Unpacks and reads the PTX when it is first needed.
  Module& module();

 private:
  const void* data_;
  std::once_flag once_;
  std::unique_ptr<Module> module_;
};

/// A kernel that a program can launch.
struct Registered {
  FatBinary* binary = nullptr;
  std::string name;
  const Code* code = nullptr;
  int most_dynamic_shared = 48 << 10;
};

/// Decoded at the first call.
const Code& code_of(Registered& kernel);

/// The kernel of a host function; nullptr if none is registered.
Registered* registered(const void* function);

/// The device's address of a variable of the host.
Address variable_of(const void* host_variable);

}  // namespace kozero::gpu_emulator
