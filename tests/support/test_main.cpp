// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The KoZeRO authors
//
// test_main.cpp: main of the tests of one process: Kokkos around a Catch2 session.

#include <catch2/catch_session.hpp>

#include <Kokkos_Core.hpp>

int main(int argc, char* argv[]) {
  Kokkos::ScopeGuard kokkos(argc, argv);
  return Catch::Session().run(argc, argv);
}
