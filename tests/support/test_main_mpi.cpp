// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The KoZeRO authors
// test_main_mpi.cpp: main of the tests of several ranks: MPI and Kokkos around one Catch2 session per rank.
// Rank 0 reports as usual. Every rank prints each of its failures at once, with its rank. All ranks meet after each
// test case. If a rank has failed and the others do not arrive, since they wait for it inside the case, it ends the
// job.

#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>

#include <kozero/distributed/wait_clock.hpp>

namespace {

constexpr auto kPatience = std::chrono::seconds(10);

MPI_Comm meeting = MPI_COMM_NULL;  // the listener's own, apart from the tests' messages

int rank_of(MPI_Comm communicator) {
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}

/// Sleeps between looks, so that the ranks that still work have the cores.
bool done_within(MPI_Request& request, std::chrono::seconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  int done = 0;
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  while (done == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
  return done != 0;
}

class RankListener : public Catch::EventListenerBase {
 public:
  using EventListenerBase::EventListenerBase;

  void sectionStarting(const Catch::SectionInfo& section) override { section_ = section.name; }

  void assertionEnded(const Catch::AssertionStats& stats) override {
    const auto& result = stats.assertionResult;
    if (result.isOk()) return;
    std::ostringstream text;
    text << "[rank " << rank_of(meeting) << "] FAILED in '" << section_ << "' at " << result.getSourceInfo() << ": "
         << result.getExpressionInMacro();
    if (result.hasExpandedExpression()) text << "   with   " << result.getExpandedExpression();
    if (result.hasMessage()) text << "   " << result.getMessage();
    for (const auto& info : stats.infoMessages) text << "   | " << info.message;
    text << '\n';
    std::cerr << text.str() << std::flush;
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const bool failed = stats.totals.assertions.failed > 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(meeting, &request);
    if (!failed) {
      while (!done_within(request, kPatience)) {
      }
    } else if (!done_within(request, kPatience)) {
      std::cerr << "[rank " << rank_of(meeting) << "] failed '" << stats.testInfo->name
                << "', and other ranks still wait inside it: the job ends here\n"
                << std::flush;
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }

 private:
  std::string section_;
};

CATCH_REGISTER_LISTENER(RankListener)

int run_session(int argc, char* argv[]) {
  Catch::Session session;
  if (rank_of(meeting) != 0) session.configData().defaultOutputFilename = "/dev/null";
  return session.run(argc, argv);
}

}  // namespace

int main(int argc, char* argv[]) {
  // The NCCL mock's copies must not wait behind a stream that waits for them: not in its queue, nor while CUDA loads a
  // kernel's code, for which it may wait until the device is idle.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_dup(MPI_COMM_WORLD, &meeting);
  int num_ranks = 1;
  MPI_Comm_size(meeting, &num_ranks);
  kozero::distributed::Patience::set_cores_are_shared(num_ranks >
                                                      static_cast<int>(std::thread::hardware_concurrency()));
  int failed = 0;
  {
    const auto settings = Kokkos::InitializationSettings().set_num_threads(1).set_disable_warnings(true);
    Kokkos::ScopeGuard kokkos(settings);
    failed = run_session(argc, argv) == 0 ? 0 : 1;
  }
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, meeting);
  MPI_Comm_free(&meeting);
  MPI_Finalize();
  return failed;
}
