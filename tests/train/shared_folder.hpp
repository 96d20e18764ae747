// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// shared_folder.hpp: an empty folder that all ranks of the world use, removed at the end.
#pragma once
#include <mpi.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <distributed/rank_groups.hpp>

namespace kozero::tests {

class SharedFolder {
 public:
  SharedFolder() {
    int number = ::getpid();
    MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
    path_ = std::filesystem::temp_directory_path() / ("kozero_checkpoint_" + std::to_string(number));
    if (test::world_rank() == 0) std::filesystem::remove_all(path_);
    if (test::world_rank() == 0) std::filesystem::create_directories(path_);
    test::meet();
  }
  ~SharedFolder() {
    test::meet();
    std::error_code ignored;
    if (test::world_rank() == 0) std::filesystem::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace kozero::tests
