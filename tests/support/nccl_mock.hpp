// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// nccl_mock.hpp: comm.backend = nccl means the tests' NCCL mock (tests/distributed/nccl_mock), for a program linked
// with kozero_uses_nccl_mock.
#pragma once
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace kozero::tests {

/// Sets an environment variable; the destructor restores the previous value.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class NcclMock : Variable {
 public:
  NcclMock() : Variable("KOZERO_NCCL_LIBRARY", file()) {}

  /// Bytes of the GPU that this process's communicators hold, or would.
  static std::int64_t memory() {
    void* bytes = dlsym(dlopen(file().c_str(), RTLD_NOW | RTLD_LOCAL), "kozero_nccl_mock_memory");
    return *static_cast<const std::atomic<std::int64_t>*>(bytes);
  }

 private:
  /// The path where the mock was built; only its name if it is not there, so that the system searches its library path.
  static std::string file() {
    const std::filesystem::path built = KOZERO_NCCL_MOCK;
    return std::filesystem::exists(built) ? built.string() : built.filename().string();
  }
};

}  // namespace kozero::tests
