// SPDX-License-Identifier: Apache-2.0
// Capture and replay, under every schedule: what becomes a node, and what a launch does.
#include "tests/emulator/emulated.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>

namespace {

using namespace emulated;

class CaptureTest : public emulated::Test {};

cudaGraph_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  return graph;
}

cudaGraph_t capture(cudaStream_t stream, const std::function<void()>& body) {
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  body();
  return end(stream);
}

cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  return executable;
}

void launch_and_wait(cudaGraphExec_t executable, cudaStream_t stream) {
  EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
}

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  std::vector<cudaGraphNode_t> nodes(count);
  EXPECT_EQ(cudaGraphGetNodes(graph, nodes.data(), &count), cudaSuccess);
  return nodes;
}

std::vector<cudaGraphNode_t> dependencies_of(cudaGraphNode_t node) {
  std::size_t count = 0;
  EXPECT_EQ(cudaGraphNodeGetDependencies(node, nullptr, nullptr, &count), cudaSuccess);
  std::vector<cudaGraphNode_t> nodes(count);
  EXPECT_EQ(cudaGraphNodeGetDependencies(node, nodes.data(), nullptr, &count), cudaSuccess);
  return nodes;
}

TEST_F(CaptureTest, WhatACapturingStreamIsGivenDoesNotRun) {
  const LockedBytes source(kBytes, 5);
  const DeviceBytes block(kBytes);
  cudaStream_t stream = make_stream();
  ASSERT_EQ(cudaMemset(block.at(), 1, kBytes), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  capture(stream, [&] { copy(block.at(), source.at(), kBytes, stream); });
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  EXPECT_EQ(block.at()[0], 1);
}

TEST_F(CaptureTest, EveryLaunchRunsTheNodesAgainOnTheSameAddresses) {
  const LockedBytes source(kBytes, 5);
  const LockedBytes target(kBytes, 0);
  const DeviceBytes block(kBytes);
  cudaStream_t stream = make_stream();
  cudaGraphExec_t graph = instantiate(capture(stream, [&] {
    copy(block.at(), source.at(), kBytes, stream);
    copy(target.at(), block.at(), kBytes, stream);
  }));

  for (char round = 1; round < 4; ++round) {
    std::memset(source.at(), round, kBytes);
    launch_and_wait(graph, stream);
    EXPECT_EQ(target.at()[kBytes - 1], round);
  }
}

TEST_F(CaptureTest, AWaitForACapturedEventJoinsTheOtherStream) {
  const LockedBytes source(kBytes, 5);
  const LockedBytes target(kBytes, 0);
  const DeviceBytes block(kBytes);
  cudaStream_t stream = make_stream();
  cudaStream_t side = make_stream();
  cudaGraph_t graph = capture(stream, [&] {
    copy(block.at(), source.at(), kBytes, stream);
    order(stream, side);
    copy(target.at(), block.at(), kBytes, side);
    order(side, stream);
    EXPECT_EQ(cudaMemsetAsync(block.at(), 0, kBytes, stream), cudaSuccess);
  });

  const auto nodes = nodes_of(graph);
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(dependencies_of(nodes[0]).size(), 0U);
  EXPECT_EQ(dependencies_of(nodes[1]), std::vector{nodes[0]});
  EXPECT_EQ(dependencies_of(nodes[2]), (std::vector{nodes[0], nodes[1]}));
  launch_and_wait(instantiate(graph), stream);
  EXPECT_EQ(target.at()[0], 5);
  EXPECT_EQ(block.at()[0], 0);
}

TEST_F(CaptureTest, NodesSayWhatTheyAre) {
  const LockedBytes source(kBytes, 5);
  const DeviceBytes block(kBytes);
  cudaStream_t stream = make_stream();
  cudaEvent_t event = make_event();
  cudaGraph_t graph = capture(stream, [&] {
    copy(block.at(), source.at(), kBytes, stream);
    EXPECT_EQ(cudaMemsetAsync(block.at(), 0, kBytes, stream), cudaSuccess);
    EXPECT_EQ(cudaLaunchHostFunc(
                  stream, [](void*) {}, nullptr),
              cudaSuccess);
    EXPECT_EQ(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream, event, cudaEventWaitExternal), cudaSuccess);
  });

  std::vector<cudaGraphNodeType> types;
  for (cudaGraphNode_t node : nodes_of(graph)) {
    types.emplace_back();
    ASSERT_EQ(cudaGraphNodeGetType(node, &types.back()), cudaSuccess);
  }
  EXPECT_EQ(types,
            (std::vector{cudaGraphNodeTypeMemcpy,
                         cudaGraphNodeTypeMemset,
                         cudaGraphNodeTypeHost,
                         cudaGraphNodeTypeEventRecord,
                         cudaGraphNodeTypeWaitEvent}));
}

TEST_F(CaptureTest, AHostFunctionRunsAtEachLaunchAndNotBefore) {
  int calls = 0;
  cudaStream_t stream = make_stream();
  cudaGraph_t graph = capture(stream, [&] {
    EXPECT_EQ(cudaLaunchHostFunc(
                  stream, [](void* count) { ++*static_cast<int*>(count); }, &calls),
              cudaSuccess);
  });
  EXPECT_EQ(calls, 0);

  cudaGraphExec_t executable = instantiate(graph);
  launch_and_wait(executable, stream);
  launch_and_wait(executable, stream);

  EXPECT_EQ(calls, 2);
}

TEST_F(CaptureTest, AnExternalEventIsRecordedByTheLaunch) {
  const LockedBytes source(kBytes, 5);
  const LockedBytes target(kBytes, 0);
  const DeviceBytes block(kBytes);
  cudaStream_t stream = make_stream();
  cudaStream_t other = make_stream();
  cudaEvent_t event = make_event();
  cudaGraphExec_t graph = instantiate(capture(stream, [&] {
    copy(block.at(), source.at(), kBytes, stream);
    EXPECT_EQ(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal), cudaSuccess);
  }));

  ASSERT_EQ(cudaGraphLaunch(graph, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  copy(target.at(), block.at(), kBytes, other);
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);

  EXPECT_EQ(target.at()[0], 5);
}

TEST_F(CaptureTest, ALaunchComesAfterTheGraphsLastLaunchOnAnotherStream) {
  const LockedBytes source(kBytes, 1);
  const LockedBytes target(kBytes, 0);
  const DeviceBytes block(kBytes);
  cudaStream_t stream = make_stream();
  cudaStream_t other = make_stream();
  cudaGraphExec_t graph = instantiate(capture(stream, [&] {
    copy(target.at(), block.at(), kBytes, stream);
    copy(block.at(), source.at(), kBytes, stream);
  }));

  ASSERT_EQ(cudaMemsetAsync(block.at(), 9, kBytes, stream), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(graph, stream), cudaSuccess);
  launch_and_wait(graph, other);

  EXPECT_EQ(target.at()[0], 1);
}

/// A kernel: adds one to what it is given, and knows when it has gone.
struct Adder {
  char* at;
  int* gone;

  static void run(void* state) { ++*static_cast<Adder*>(state)->at; }

  static void destroy(void* state) {
    const std::unique_ptr<Adder> adder(static_cast<Adder*>(state));
    ++*adder->gone;
  }
};

TEST_F(CaptureTest, AKernelRunsAtEachLaunchAndGoesWithTheLastThatKnowsIt) {
  const DeviceBytes block(kBytes);
  int gone = 0;
  cudaStream_t stream = make_stream();
  ASSERT_EQ(cudaMemset(block.at(), 0, kBytes), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  cudaGraph_t graph = capture(stream, [&] {
    EXPECT_EQ(spillway_emulator_capturing(stream), 1);
    const spillway_emulator_view access{block.at(), 1, 0, {}, {}, 1};
    auto adder = std::make_unique<Adder>(Adder{block.at(), &gone});
    EXPECT_EQ(spillway_emulator_add_node(
                  stream, "add", Adder::run, Adder::destroy, adder.release(), &access, 1),
              CUDA_SUCCESS);
  });
  EXPECT_EQ(spillway_emulator_capturing(stream), 0);
  cudaGraphExec_t executable = instantiate(graph);

  launch_and_wait(executable, stream);
  launch_and_wait(executable, stream);
  EXPECT_EQ(block.at()[0], 2);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  launch_and_wait(executable, stream);
  EXPECT_EQ(block.at()[0], 3);
  EXPECT_EQ(gone, 0);
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  ASSERT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);

  EXPECT_EQ(block.at()[0], 4);
  EXPECT_EQ(gone, 1);
}

TEST_F(CaptureTest, AKernelIsRefusedWhereNothingIsCaptured) {
  EXPECT_EQ(spillway_emulator_add_node(
                make_stream(), "add", [](void*) {}, [](void*) { FAIL(); }, nullptr, nullptr, 0),
            CUDA_ERROR_ILLEGAL_STATE);
}

TEST_F(CaptureTest, ACaptureReportsItsIdGraphAndDependencies) {
  const LockedBytes source(kBytes, 5);
  const DeviceBytes block(kBytes);
  cudaStream_t stream = make_stream();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* after = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  copy(block.at(), source.at(), kBytes, stream);

  ASSERT_EQ(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &after, nullptr, &count),
            cudaSuccess);

  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_NE(id, 0U);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(after[0], nodes_of(graph).at(0));
  EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);  // the capture still adds to it
  EXPECT_EQ(end(stream), graph);
  ASSERT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
}

TEST_F(CaptureTest, DependenciesCanBeReplaced) {
  const LockedBytes source(kBytes, 5);
  const DeviceBytes block(kBytes);
  cudaStream_t stream = make_stream();
  cudaGraph_t graph = capture(stream, [&] {
    copy(block.at(), source.at(), 1, stream);
    EXPECT_EQ(cudaStreamUpdateCaptureDependencies(
                  stream, nullptr, nullptr, 0, cudaStreamSetCaptureDependencies),
              cudaSuccess);
    copy(block.at() + 1, source.at(), 1, stream);
    cudaGraphNode_t none = nullptr;
    EXPECT_EQ(cudaStreamUpdateCaptureDependencies(
                  stream, &none, nullptr, 1, cudaStreamAddCaptureDependencies),
              cudaErrorInvalidValue);
    std::size_t count = 0;
    cudaStreamCaptureStatus status{};
    cudaGraph_t unfinished = nullptr;
    EXPECT_EQ(
        cudaStreamGetCaptureInfo(stream, &status, nullptr, &unfinished, nullptr, nullptr, &count),
        cudaSuccess);
    cudaGraphNode_t first = nodes_of(unfinished).at(0);
    EXPECT_EQ(cudaStreamUpdateCaptureDependencies(
                  stream, &first, nullptr, 1, cudaStreamAddCaptureDependencies),
              cudaSuccess);
  });

  EXPECT_EQ(dependencies_of(nodes_of(graph).at(1)).size(), 0U);
}

TEST_F(CaptureTest, AGraphCanBeWrittenAsADotFile) {
  const LockedBytes source(kBytes, 5);
  const DeviceBytes block(kBytes);
  cudaStream_t stream = make_stream();
  cudaGraph_t graph = capture(stream, [&] {
    copy(block.at(), source.at(), kBytes, stream);
    EXPECT_EQ(cudaMemsetAsync(block.at(), 0, kBytes, stream), cudaSuccess);
  });
  const std::string path = ::testing::TempDir() + "spillway_capture_test_" +
                           std::to_string(reinterpret_cast<std::uintptr_t>(&graph)) + ".dot";

  ASSERT_EQ(cudaGraphDebugDotPrint(graph, path.c_str(), 0), cudaSuccess);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());

  EXPECT_EQ(text.str(),
            "digraph {\n  node_0 [label=\"0 memcpy host to device\"];\n"
            "  node_1 [label=\"1 memset\"];\n  node_0 -> node_1;\n}\n");
  EXPECT_EQ(cudaGraphDebugDotPrint(graph, "/nowhere/at/all", 0), cudaErrorOperatingSystem);
}

/// Captures a copy between device memory and a page of the program, whose mapping then `changes`.
/// Ends the process with the error of the launch.
void launch_without_page(bool to_device, const std::function<void(void*)>& changes) {
  constexpr std::size_t kPage = 4096;
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* block = nullptr;
  if (cudaMalloc(&block, kPage) != cudaSuccess) std::_Exit(1);
  cudaStream_t stream = make_stream();
  cudaGraphExec_t executable = instantiate(capture(
      stream, [&] { copy(to_device ? block : page, to_device ? page : block, kPage, stream); }));
  launch_and_wait(executable, stream);  // while it is there, fine
  changes(page);
  static_cast<void>(cudaGraphLaunch(executable, stream));
  std::_Exit(cudaStreamSynchronize(stream));
}

TEST_F(CaptureTest, ACopyFromPageableMemoryThatIsGoneAtTheLaunchIsAnIllegalAddress) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the error stays with its process
  const auto take = [](void* page) {  // not unmapped: another mapping could take its place
    mprotect(page, 4096, PROT_NONE);
  };
  EXPECT_EXIT(launch_without_page(true, take),
              testing::ExitedWithCode(cudaErrorIllegalAddress % 256),
              "\"memcpy host to device\" accessed memory that was unmapped");
}

TEST_F(CaptureTest, ACopyToPageableMemoryThatIsReadOnlyAtTheLaunchIsAnIllegalAddress) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto protect = [](void* page) {
    mprotect(page, 4096, PROT_READ);
  };
  EXPECT_EXIT(launch_without_page(false, protect),
              testing::ExitedWithCode(cudaErrorIllegalAddress % 256),
              "\"memcpy device to host\" accessed memory that was unmapped");
}

TEST_F(CaptureTest, HandlesThatAreGoneAreRefused) {
  cudaStream_t stream = make_stream();
  cudaGraph_t graph = capture(stream, [] {});
  cudaGraphExec_t executable = instantiate(graph);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);

  EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaErrorInvalidValue);
}

}  // namespace
