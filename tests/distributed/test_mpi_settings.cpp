// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_mpi_settings.cpp: which variables are set for MPI, for which library, and that those of the user are kept.
#include <catch2/catch_test_macros.hpp>

#include <kozero/distributed/mpi_settings.hpp>

#include <cstdlib>
#include <map>

using namespace kozero::distributed;

namespace {

const std::string kMpichOnUcx = "MPICH Version:\t4.0.2\nMPICH Device:\tch4:ucx\n";
constexpr const char* kSend = "UCX_TCP_TX_SEG_SIZE";
constexpr const char* kReceive = "UCX_TCP_RX_SEG_SIZE";

/// An environment of one variable; none if `name` is "".
Variables only(const std::string& name, const char* value = "") {
  return [name, value](const char* asked) { return name == asked ? value : nullptr; };
}

}  // namespace

TEST_CASE("MPICH on UCX is given TCP segments of 256 KiB, equal for both directions") {
  CHECK(settings_for_tcp(only(""), kMpichOnUcx) == MpiSettings{{kSend, "256k"}, {kReceive, "256k"}});
  CHECK(text_of(settings_for_tcp(only("UCX_TLS", "tcp,self"), kMpichOnUcx)) ==
        "UCX_TCP_TX_SEG_SIZE=256k UCX_TCP_RX_SEG_SIZE=256k");
}

TEST_CASE("nothing is set beside a variable of the user, be it empty") {
  for (const char* name : {kSend, kReceive, "UCX_RNDV_THRESH"}) {
    CAPTURE(name);
    CHECK(settings_for_tcp(only(name, "64k"), kMpichOnUcx).empty());
    CHECK(settings_for_tcp(only(name, ""), kMpichOnUcx).empty());
  }
}

TEST_CASE("another MPI is given nothing") {
  CHECK(settings_for_tcp(only(""), "MPICH Version:\t4.0.2\nMPICH Device:\tch4:ofi\n").empty());
  CHECK(settings_for_tcp(only(""), "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4 (ch4:ucx)").empty());
  CHECK(settings_for_tcp(only(""), "").empty());
}

TEST_CASE("what is set is in the environment, and remembered once") {
  for (const char* name : {kSend, kReceive, "UCX_RNDV_THRESH"}) unsetenv(name);
  const MpiSettings expected = settings_for_tcp(std::getenv, library_description());
  set_variables_of_mpi();
  std::map<std::string, std::string> set(settings_of_mpi().begin(), settings_of_mpi().end());
  set.erase("UCX_TLS");  // by the size of /dev/shm
  CHECK(MpiSettings(set.rbegin(), set.rend()) == expected);
  for (const auto& [name, value] : expected) CHECK(std::getenv(name.c_str()) == value);
  const std::size_t before = settings_of_mpi().size();
  set_variables_of_mpi();
  CHECK(settings_of_mpi().size() == before);
}
