// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_cudnn_graphs.cpp: cuDNN's plans of attention for an A100 and an H200, built without a GPU. cuDNN reads a GPU's
// description, chooses a kernel and compiles it; the mock of CUDA's driver accepts the result. This shows that cuDNN
// has a kernel for the shapes and strides of our graphs, and how much workspace the kernel needs. No kernel runs.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <kozero/core/presets.hpp>
#include <kozero/model/config.hpp>
#include "kernels/attention/cuda/attention_cudnn_graph.hpp"

namespace cudnn_frontend {
void* cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
}

namespace kozero::kernels {
namespace {

using Catch::Matchers::ContainsSubstring;

enum class Gpu { a100, h200 };

/// The GPU's properties as cudaGetDeviceProperties returns them (CUDA C++ Programming Guide, "Compute Capabilities",
/// and data sheets), with cuDNN's field names.
std::string properties_of(Gpu gpu) {
  const std::string varied =
      gpu == Gpu::a100
          ? R"("deviceName":"NVIDIA A100-SXM4-80GB","deviceVer":800,"multiProcessorCount":108,
               "totalGlobalMem":85899345920,
               "maxSharedMemoryPerBlockOptin":166912,"l2CacheSize":41943040,"smClockRateKHz":1410000,
               "memClockRateKHz":1593000)"
          : R"("deviceName":"NVIDIA H200","deviceVer":900,"multiProcessorCount":132,"totalGlobalMem":151397597184,
               "maxSharedMemoryPerBlockOptin":232448,"l2CacheSize":62914560,"smClockRateKHz":1980000,
               "memClockRateKHz":3201000)";
  return "{" + varied + R"(,"cudaDeviceId":0,"driverVer":13000,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,
    "maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"warpSize":32,
    "maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,
    "maxThreadsPerBlock":1024,"maxThreadsPerSM":2048})";
}

/// cuDNN accepts descriptions from version 9.8 on.
CudnnTarget target(Gpu gpu) {
  REQUIRE(fe::cudnn_dlhandle != nullptr);
  if (fe::detail::get_backend_version() < 90800) SKIP("cuDNN is older than 9.8");
  const std::string json = properties_of(gpu);
  const auto description = std::make_shared<fe::DeviceProperties>();
  fe::error_t error = description->deserialize({json.begin(), json.end()});
  REQUIRE(error.get_message() == "");
  return {.description = description, .compute_capability = gpu == Gpu::a100 ? 80 : 90};
}

CudnnGraph forward(Gpu gpu, const CudnnAttention& shape) { return {target(gpu), shape, false}; }
CudnnGraph backward(Gpu gpu, const CudnnAttention& shape) { return {target(gpu), shape, true}; }

Gpu each_gpu() { return GENERATE(Gpu::a100, Gpu::h200); }

}  // namespace

TEST_CASE("cuDNN computes the attention of every preset", "[cudnn]") {
  const Gpu gpu = each_gpu();
  std::set<std::pair<std::int64_t, std::int64_t>>
      seen;  // (query heads per key head, head size), which determine the kernel
  for (const std::string& preset : preset_names()) {
    const model::Config config = model::resolved(model::with_preset({.vocab = 256}, preset));
    if (!seen.emplace(config.heads / config.kv_heads, config.head_dim).second) continue;
    const std::int64_t positions = std::min<std::int64_t>(config.seq, 1024);
    const CudnnAttention shape = {2, positions, config.heads, config.kv_heads, config.head_dim, CudnnType::bf16};
    INFO(preset << " on " << (gpu == Gpu::a100 ? "A100" : "H200"));
    CHECK(forward(gpu, shape).unavailable_reason() == "");
    CHECK(backward(gpu, shape).unavailable_reason() == "");
  }
}

TEST_CASE("the graphs read and write the arrays of attention.hpp, with fewer key heads than query heads too",
          "[cudnn]") {
  const CudnnAttention shape = {2, 32, 12, 4, 64, CudnnType::bf16};
  const CudnnGraph of_forward = forward(Gpu::h200, shape), of_backward = backward(Gpu::h200, shape);
  // The front end transposes some arrays in place, so the order of the dimensions has no meaning.
  const auto dimensions = [](const CudnnGraph& graph, CudnnArray array) {
    std::set<std::pair<std::int64_t, std::int64_t>> all;
    for (std::size_t i = 0; i < 4; ++i) all.emplace(graph.extents(array)[i], graph.strides(array)[i]);
    return all;
  };
  const auto check = [&](const CudnnGraph& graph, CudnnArray array, std::int64_t heads, std::int64_t row) {
    INFO("array " << array);
    CHECK((dimensions(graph, array) ==
           decltype(dimensions(graph, array)){{2, 32 * row}, {heads, 64}, {32, row}, {64, 1}}));
  };
  constexpr std::int64_t kQkvRow = (12 + 4 + 4) * 64, kOutputRow = 12 * 64;
  for (const CudnnGraph* graph : {&of_forward, &of_backward}) {
    check(*graph, kQuery, 12, kQkvRow);
    check(*graph, kKey, 4, kQkvRow);
    check(*graph, kValue, 4, kQkvRow);
    check(*graph, kOutput, 12, kOutputRow);
    CHECK(graph->extents(kLogsumexp) == std::vector<std::int64_t>{2, 12, 32, 1});
    CHECK(graph->strides(kLogsumexp) == std::vector<std::int64_t>{12 * 32, 32, 1, 1});
  }
  check(of_backward, kOutputGradient, 12, kOutputRow);
  check(of_backward, kQueryGradient, 12, kQkvRow);
  check(of_backward, kKeyGradient, 4, kQkvRow);
  check(of_backward, kValueGradient, 4, kQkvRow);
}

TEST_CASE("cuDNN computes attention over an odd number of positions and in fp16", "[cudnn]") {
  const Gpu gpu = each_gpu();
  const CudnnAttention shape = {3, 777, 12, 4, 96, CudnnType::f16};
  CHECK(forward(gpu, shape).unavailable_reason() == "");
  CHECK(backward(gpu, shape).unavailable_reason() == "");
}

TEST_CASE("cuDNN's heads have multiples of 8 channels, on A100 at most 128, on H200 at most 256", "[cudnn]") {
  const Gpu gpu = each_gpu();
  const auto shape = [](std::int64_t head_dim) { return CudnnAttention{2, 64, 4, 2, head_dim, CudnnType::bf16}; };
  const std::int64_t most = gpu == Gpu::a100 ? 128 : 256;
  CHECK(backward(gpu, shape(8)).unavailable_reason() == "");
  CHECK(backward(gpu, shape(most)).unavailable_reason() == "");
  CHECK_THAT(backward(gpu, shape(most + 8)).unavailable_reason(),
             ContainsSubstring("less than or equal to " + std::to_string(most)));
  CHECK_THAT(backward(gpu, shape(36)).unavailable_reason(), ContainsSubstring("multiple of 8"));
}

TEST_CASE("cuDNN has a forward over one position, and no backward", "[cudnn]") {
  const Gpu gpu = each_gpu();
  const CudnnAttention shape = {2, 1, 4, 4, 64, CudnnType::bf16};
  CHECK(forward(gpu, shape).unavailable_reason() == "");
  CHECK_THAT(backward(gpu, shape).unavailable_reason(), ContainsSubstring("not supported"));
}

TEST_CASE("a deterministic backward keeps the gradients of all scores", "[cudnn]") {
  const Gpu gpu = each_gpu();
  CudnnAttention shape = {8, 1024, 12, 12, 64, CudnnType::bf16};
  const std::int64_t scores = 2 * shape.batch * shape.heads * shape.positions * shape.positions;
  const std::int64_t deterministic = backward(gpu, shape).workspace();
  CHECK(deterministic >= scores);
  CHECK(deterministic < scores + scores / 100);

  shape.repeats = false;
  const std::int64_t element = gpu == Gpu::a100 ? 8 : 4;
  const std::int64_t sums = element * shape.batch * shape.heads * shape.positions * shape.head_dim;
  const std::int64_t adding = backward(gpu, shape).workspace();
  CHECK(adding >= sums);
  CHECK(adding < sums + sums / 50);
}

}  // namespace kozero::kernels
