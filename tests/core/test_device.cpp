// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_device.cpp: the table of published peaks, and the name and memory of this build's device.
#include <catch2/catch_test_macros.hpp>

#include <kozero/core/device.hpp>

using namespace kozero;

TEST_CASE("a GPU's published peak is found by its name") {
  CHECK(published_peak("NVIDIA H200 at 0000:3b:00.0", true) == 989e12);
  CHECK(published_peak("NVIDIA H100 80GB HBM3", false) == 67e12);
  CHECK(published_peak("NVIDIA H100 PCIe", true) == 756e12);
  CHECK(published_peak("NVIDIA A100-SXM4-80GB", true) == 312e12);
  CHECK(published_peak("NVIDIA GeForce", true) == 0.0);
  CHECK(published_peak("", true) == 0.0);
}

TEST_CASE("a device has a name and memory of its own exactly where it is no host") {
  CHECK(device_name().empty() == kHostIsDevice);
  CHECK((device_memory().total == 0) == kHostIsDevice);
  CHECK(device_memory().free <= device_memory().total);
}
