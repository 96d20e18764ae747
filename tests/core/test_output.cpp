// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_output.cpp: QueuedOutput on pipes whose readers read nothing, late, or have gone, and on a full device.
#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <kozero/core/output.hpp>

namespace {

using namespace std::chrono_literals;
using kozero::QueuedOutput;

struct Pipe {
  Pipe() { REQUIRE(::pipe(ends.data()) == 0); }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(std::size_t end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }

  std::array<int, 2> ends{};
};

std::string line_of(int number) { return "line " + std::to_string(number) + " " + std::string(90, '.') + "\n"; }

/// All that is read until the last writer has closed the pipe.
std::string text_of(int reader) {
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t count = 0; (count = ::read(reader, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace

TEST_CASE("a reader that does not read stops no writer, and gets the oldest and the newest lines when it does") {
  constexpr int kLines = 20'000;  // 2 MB
  Pipe pipe;
  std::string read;
  std::string missing;
  std::thread reader;
  {
    QueuedOutput output(pipe.ends[1]);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kLines; ++i) output.write(line_of(i));
    CHECK(output.problem() == 0);
    CHECK(output.is_behind());
    CHECK(output.lines_left_out() > kLines / 2);
    CHECK_FALSE(output.drain(20ms));
    CHECK_FALSE(output.drain(1h));  // nothing was accepted since
    CHECK(std::chrono::steady_clock::now() - start < 30s);
    CHECK((::fcntl(pipe.ends[1], F_GETFL) & O_NONBLOCK) == 0);
    reader = std::thread([&] { read = text_of(pipe.ends[0]); });
    for (int look = 0; look < 10'000 && output.is_behind(); ++look) {
      output.write("");
      std::this_thread::sleep_for(1ms);
    }
    CHECK(output.drain(10s));
    CHECK(output.write("after it\n"));
    missing = "\n... " + std::to_string(output.lines_left_out()) + " lines are missing here";
  }
  pipe.close_end(1);
  reader.join();
  CHECK(read.starts_with(line_of(0)));
  CHECK(read.find(missing) != std::string::npos);
  CHECK(read.ends_with(line_of(kLines - 1) + "after it\n"));
}

TEST_CASE("a reader that has gone and a full device are errors of the output") {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  QueuedOutput output(pipe.ends[1]);
  pipe.close_end(0);
  CHECK_FALSE(output.write("a line\n"));
  CHECK(output.problem() == EPIPE);
  const int full = ::open("/dev/full", O_WRONLY);
  QueuedOutput on_full(full);
  CHECK_FALSE(on_full.write("a line\n"));
  CHECK(on_full.problem() == ENOSPC);
  ::close(full);
}
