// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host_cpus.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/io/whole_file.hpp>
#include <kozero/kernels/product_tuning.hpp>

#include "tuned_products.hpp"

namespace kozero::commands {
namespace {

constexpr std::int64_t kLargestFile = std::int64_t{1} << 24;

void require_same(const std::string& path, const std::string& what, const std::string& there, const std::string& here) {
  if (there == here) return;
  throw Error(Failure::input, path + ": it was made for the " + what + " \"" + there + "\", this is \"" + here +
                                  "\"; `kozero bench tune` makes one here");
}

kernels::ProductWays ways_in(const std::string& text, const std::string& path) {
  const io::TuningFile tuning = io::parse_tuning(text, path);
  const io::TuningFile here = tuning_of_this_place();
  require_same(path, "device", tuning.device, here.device);
  require_same(path, "library", tuning.library, here.library);
  return tuning.products;
}

}  // namespace

io::TuningFile tuning_of_this_place() {
  const std::string gpu = device_name();  // its address is behind its name
  return {kHostIsDevice ? cpu_name() : gpu.substr(0, gpu.rfind(" at ")),
          kernels::product_library(),
          kHostIsDevice ? Device().concurrency() : 0,
          {}};
}

std::string apply_tuning(const io::Deck& deck, dist::Communicator& comm) {
  const std::string& path = deck.run.tuning;
  const bool given = path != "none";
  const bool reads = given && comm.rank() == 0;
  const std::string mine =
      dist::agreed(comm, [&] { return reads ? io::read_whole_file(path, kLargestFile) : std::string(); });
  const std::string text = given ? comm.broadcast_control(mine) : "";
  dist::agreed(comm,
               [&] { kernels::use_product_ways(given ? ways_in(text, path) : kernels::ProductWays(), path); });
  return text;
}

}  // namespace kozero::commands
