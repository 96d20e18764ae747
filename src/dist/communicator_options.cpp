// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// communicator_options.cpp: the defaults that ask the system.
#include <sys/statvfs.h>

#include <iostream>

#include <kozero/core/device.hpp>
#include <kozero/dist/communicator_options.hpp>

namespace kozero::dist {

std::int64_t free_shared_memory() {
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) != 0) return 0;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

std::int64_t free_device_memory() { return device_memory().free; }

void print_notice(const std::string& line) { std::cerr << line << std::endl; }

}  // namespace kozero::dist
