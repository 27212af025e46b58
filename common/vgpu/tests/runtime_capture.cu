// Stream capture through the runtime's API: what becomes a node, forks and joins, modes, and what a GPU
// refuses meanwhile.
#include "graph_support.cuh"

using namespace graph_tests;

TEST_CASE("capture: nothing runs while it lasts, and each launch does all of it") {
  Stream stream;
  Ints x(1);
  Graph graph;
  begin(stream);
  CHECK(status_of(stream) == cudaStreamCaptureStatusActive);
  int value = 5;
  add<<<1, kCount, 0, stream>>>(x.p, value);
  value = 100;  // arguments are copied at the launch
  scale<<<1, kCount, 0, stream>>>(x.p, 2);
  CHECK_OK(cudaStreamEndCapture(stream, &graph.g));
  CHECK(status_of(stream) == cudaStreamCaptureStatusNone);
  CHECK(x.get() == 1);
  CHECK(count_nodes(graph) == 2);
  CHECK(count_edges(graph) == 1);
  Exec exec(graph);
  CHECK_OK(cudaGraphUpload(exec, stream));
  CHECK(x.get() == 1);
  CHECK_OK(cudaGraphLaunch(exec, stream));
  CHECK(x.get() == 12);
  for (int i = 0; i < 3; ++i) CHECK_OK(cudaGraphLaunch(exec, stream));
  CHECK(x.get() == ((12 + 5) * 2 + 5) * 2 * 2 + 10);
}

TEST_CASE("capture: forks to other streams through events and joins back") {
  Stream main, left, right;
  Event fork, left_done, right_done;
  Ints a(1), b(2), c;
  Graph graph;
  begin(main);
  CHECK_OK(cudaMemsetAsync(c.p, 0, kCount * 4, main));
  CHECK_OK(cudaEventRecord(fork, main));
  CHECK_OK(cudaStreamWaitEvent(left, fork));
  CHECK_OK(cudaStreamWaitEvent(right, fork));
  CHECK(status_of(left) == cudaStreamCaptureStatusActive);
  add<<<1, kCount, 0, left>>>(a.p, 10);
  scale<<<1, kCount, 0, right>>>(b.p, 10);
  CHECK_OK(cudaEventRecord(left_done, left));
  CHECK_OK(cudaEventRecord(right_done, right));
  CHECK_OK(cudaStreamWaitEvent(main, left_done));
  CHECK_OK(cudaStreamWaitEvent(main, right_done));
  sum<<<1, kCount, 0, main>>>(a.p, b.p, c.p);
  unsigned long long id = 0, other_id = 0;
  cudaGraph_t seen = nullptr;
  cudaStreamCaptureStatus status;
  const cudaGraphNode_t* tips = nullptr;
  std::size_t tip_count = 0;
  CHECK_OK(cudaStreamGetCaptureInfo(main, &status, &id, &seen, &tips, nullptr, &tip_count));
  CHECK_OK(cudaStreamGetCaptureInfo(left, &status, &other_id));
  CHECK(id != 0);
  CHECK(id == other_id);
  CHECK(tip_count == 1);
  cudaGraphNodeType type;
  CHECK_OK(cudaGraphNodeGetType(tips[0], &type));
  CHECK(type == cudaGraphNodeTypeKernel);
  CHECK_OK(cudaStreamEndCapture(main, &graph.g));
  CHECK(seen == graph.g);
  CHECK(status_of(left) == cudaStreamCaptureStatusNone);
  CHECK(count_nodes(graph) == 4);
  // The two kernels come after the fill, and neither after the other.
  std::vector<cudaGraphNode_t> nodes(4);
  std::size_t n = 4;
  CHECK_OK(cudaGraphGetNodes(graph, nodes.data(), &n));
  for (int i = 1; i < 3; ++i) {
    cudaGraphNode_t before[4] = {};
    n = 4;
    CHECK_OK(cudaGraphNodeGetDependencies(nodes[i], before, nullptr, &n));
    CHECK(n == 1);
    CHECK(before[0] == nodes[0]);
  }
  Exec exec(graph);
  CHECK_OK(cudaGraphLaunch(exec, main));
  CHECK(c.get() == 31);
  CHECK_OK(cudaGraphLaunch(exec, main));
  CHECK(c.get() == 221);
}

TEST_CASE("capture: an unjoined fork, two captures that meet, work from outside") {
  Stream main, other;
  Event event;
  Ints x;
  begin(main);
  CHECK_OK(cudaEventRecord(event, main));
  CHECK_OK(cudaStreamWaitEvent(other, event));
  add<<<1, kCount, 0, other>>>(x.p, 1);
  CHECK(cudaStreamEndCapture(other, nullptr) != cudaSuccess);
  cudaGetLastError();
  ends_with(main, cudaErrorStreamCaptureUnjoined);
  CHECK(status_of(other) == cudaStreamCaptureStatusNone);

  // Neither has a fork joined that was destroyed.
  cudaStream_t gone = nullptr;
  CHECK_OK(cudaStreamCreate(&gone));
  begin(main);
  CHECK_OK(cudaEventRecord(event, main));
  CHECK_OK(cudaStreamWaitEvent(gone, event));
  add<<<1, kCount, 0, gone>>>(x.p, 1);
  CHECK_OK(cudaStreamDestroy(gone));
  ends_with(main, cudaErrorStreamCaptureUnjoined);

  // A fork without work of its own needs no join.
  Graph graph;
  begin(main);
  add<<<1, kCount, 0, main>>>(x.p, 1);
  CHECK_OK(cudaEventRecord(event, main));
  CHECK_OK(cudaStreamWaitEvent(other, event));
  CHECK_OK(cudaStreamEndCapture(main, &graph.g));

  // Not where it began.
  begin(main);
  CHECK_OK(cudaEventRecord(event, main));
  CHECK_OK(cudaStreamWaitEvent(other, event));
  cudaGraph_t none = nullptr;
  CHECK(cudaStreamEndCapture(other, &none) == cudaErrorStreamCaptureUnmatched);
  ends_with(main, cudaErrorStreamCaptureInvalidated);

  begin(main);
  begin(other);
  CHECK_OK(cudaEventRecord(event, main));
  CHECK(cudaStreamWaitEvent(other, event) == cudaErrorStreamCaptureMerge);
  CHECK(status_of(main) == cudaStreamCaptureStatusInvalidated);
  ends_with(main, cudaErrorStreamCaptureInvalidated);
  ends_with(other, cudaErrorStreamCaptureInvalidated);

  CHECK_OK(cudaEventRecord(event, other));
  begin(main);
  CHECK(cudaStreamWaitEvent(main, event) == cudaErrorStreamCaptureIsolation);
  ends_with(main, cudaErrorStreamCaptureInvalidated);

  CHECK(cudaStreamEndCapture(main, &none) == cudaErrorIllegalState);
  begin(main);
  CHECK(cudaStreamBeginCapture(main, cudaStreamCaptureModeGlobal) == cudaErrorIllegalState);
  CHECK(cudaStreamEndCapture(main, &none) == cudaSuccess);
  CHECK(count_nodes(none) == 0);
  CHECK_OK(cudaGraphDestroy(none));
  CHECK(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal) ==
        cudaErrorStreamCaptureUnsupported);
  cudaGetLastError();
}

TEST_CASE("capture: calls that may not be made meanwhile fail and spoil it") {
  Stream stream;
  Event event;
  Ints x;
  int host = 0;
  void* p = nullptr;
  const auto spoils = [&](cudaError_t expected, auto&& call) {
    begin(stream);
    add<<<1, kCount, 0, stream>>>(x.p, 1);
    CHECK_OK(cudaEventRecord(event, stream));
    CHECK(call() == expected);
    cudaGetLastError();
    CHECK(status_of(stream) == cudaStreamCaptureStatusInvalidated);
    add<<<1, kCount, 0, stream>>>(x.p, 1);
    CHECK(cudaGetLastError() == cudaErrorStreamCaptureInvalidated);
    ends_with(stream, cudaErrorStreamCaptureInvalidated);
  };
  const cudaError_t unsupported = cudaErrorStreamCaptureUnsupported;
  spoils(unsupported, [&] { return cudaStreamSynchronize(stream); });
  spoils(unsupported, [&] { return cudaStreamQuery(stream); });
  spoils(unsupported, [&] { return cudaDeviceSynchronize(); });
  spoils(unsupported, [&] { return cudaMalloc(&p, 4); });
  spoils(unsupported, [&] { return cudaFree(nullptr); });
  spoils(unsupported, [&] { return cudaMallocHost(&p, 4); });
  spoils(unsupported, [&] { return cudaMemcpy(&host, x.p, 4, cudaMemcpyDeviceToHost); });
  spoils(unsupported, [&] {
    return cudaStreamAddCallback(
        stream, [](cudaStream_t, cudaError_t, void*) {}, nullptr, 0);
  });
  spoils(cudaErrorCapturedEvent, [&] { return cudaEventSynchronize(event); });
  spoils(cudaErrorCapturedEvent, [&] { return cudaEventQuery(event); });
  CHECK(x.get() == 0);

  // A blocking stream captures: the legacy default stream would have to wait for it.
  Stream blocking(cudaStreamDefault);
  begin(blocking, cudaStreamCaptureModeRelaxed);
  add<<<1, kCount>>>(x.p, 1);
  CHECK(cudaGetLastError() == cudaErrorStreamCaptureImplicit);
  ends_with(blocking, cudaErrorStreamCaptureInvalidated);
  Graph graph;
  begin(stream);
  add<<<1, kCount>>>(x.p, 1);  // it has nothing to do with a non-blocking one
  CHECK_OK(cudaGetLastError());
  CHECK_OK(cudaStreamEndCapture(stream, &graph.g));
  CHECK(count_nodes(graph) == 0);
  CHECK(x.get() == 1);
}

TEST_CASE("capture: modes say which thread may call what") {
  Stream stream;
  void* p = nullptr;
  const auto in_thread = [](auto&& body) { std::thread(body).join(); };
  const auto allocates = [&](cudaStreamCaptureMode mode, bool here, bool there) {
    Graph graph;
    begin(stream, mode);
    in_thread([&] {
      const cudaError_t error = cudaMalloc(&p, 4);
      CHECK(error == (there ? cudaSuccess : cudaErrorStreamCaptureUnsupported));
    });
    if (there) {
      const cudaError_t error = cudaMalloc(&p, 4);
      CHECK(error == (here ? cudaSuccess : cudaErrorStreamCaptureUnsupported));
    }
    const cudaError_t end = cudaStreamEndCapture(stream, &graph.g);
    CHECK(end == (here && there ? cudaSuccess : cudaErrorStreamCaptureInvalidated));
    cudaGetLastError();
  };
  allocates(cudaStreamCaptureModeGlobal, false, false);
  allocates(cudaStreamCaptureModeThreadLocal, false, true);
  allocates(cudaStreamCaptureModeRelaxed, true, true);

  // A thread may say that it knows what it does.
  Graph graph;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  begin(stream);
  CHECK_OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeGlobal);
  CHECK_OK(cudaMalloc(&p, 4));
  CHECK_OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeRelaxed);
  in_thread([&] {
    cudaGraph_t none = nullptr;
    CHECK(cudaStreamEndCapture(stream, &none) == cudaErrorStreamCaptureWrongThread);
  });
  CHECK_OK(cudaStreamEndCapture(stream, &graph.g));

  // A global capture does not hold up a thread whose own mode is thread-local.
  Graph still;
  begin(stream);
  in_thread([&] {
    cudaStreamCaptureMode own = cudaStreamCaptureModeThreadLocal;
    CHECK_OK(cudaThreadExchangeStreamCaptureMode(&own));
    CHECK_OK(cudaMalloc(&p, 4));
  });
  CHECK_OK(cudaStreamEndCapture(stream, &still.g));
}

TEST_CASE("capture: into a graph that is there, with dependencies of one's own") {
  Stream stream;
  Ints x(1);
  Graph graph;
  CHECK_OK(cudaGraphCreate(&graph.g, 0));
  const cudaGraphNode_t first = kernel_node(graph, {}, add, x.p, 1);
  CHECK_OK(cudaStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1,
                                         cudaStreamCaptureModeGlobal));
  scale<<<1, kCount, 0, stream>>>(x.p, 10);
  const cudaGraphNode_t* tips = nullptr;
  std::size_t n = 0;
  cudaStreamCaptureStatus status;
  CHECK_OK(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &tips, nullptr, &n));
  const cudaGraphNode_t second = tips[0];
  // A node by hand in between: behind `second`, and the stream goes on behind it.
  cudaGraphNode_t between = kernel_node(graph, {second}, add, x.p, 3);
  CHECK_OK(cudaStreamUpdateCaptureDependencies(stream, &between, nullptr, 1,
                                               cudaStreamSetCaptureDependencies));
  scale<<<1, kCount, 0, stream>>>(x.p, 2);
  cudaGraph_t same = nullptr;
  CHECK_OK(cudaStreamEndCapture(stream, &same));
  CHECK(same == graph.g);
  CHECK(count_nodes(graph) == 4);
  CHECK(count_edges(graph) == 3);
  Exec exec(graph);
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == ((1 + 1) * 10 + 3) * 2);
}

TEST_CASE("capture: copies, fills, host functions, memory and other graphs become nodes") {
  Stream stream;
  Graph inner, graph;
  int* pinned = nullptr;
  CHECK_OK(cudaMallocHost(&pinned, kCount * 4));
  Ints x(7);
  begin(stream);
  add<<<1, kCount, 0, stream>>>(x.p, 1);
  CHECK_OK(cudaStreamEndCapture(stream, &inner.g));
  Exec inner_exec(inner);

  int calls = 0;
  begin(stream);
  CHECK_OK(cudaGraphLaunch(inner_exec, stream));
  int* scratch = nullptr;
  CHECK_OK(cudaMallocAsync(&scratch, kCount * 4, stream));
  CHECK(scratch != nullptr);
  CHECK_OK(cudaMemcpyAsync(scratch, x.p, kCount * 4, cudaMemcpyDeviceToDevice, stream));
  scale<<<1, kCount, 0, stream>>>(scratch, 3);
  CHECK_OK(cudaMemcpyAsync(pinned, scratch, kCount * 4, cudaMemcpyDeviceToHost, stream));
  CHECK_OK(cudaFreeAsync(scratch, stream));
  CHECK_OK(cudaLaunchHostFunc(
      stream, [](void* n) { ++*static_cast<int*>(n); }, &calls));
  CHECK_OK(cudaMemset2DAsync(x.p, 16, 1, 16, kCount / 4, stream));
  CHECK_OK(cudaStreamEndCapture(stream, &graph.g));
  CHECK(calls == 0);
  std::vector<cudaGraphNode_t> nodes(count_nodes(graph));
  std::size_t n = nodes.size();
  CHECK_OK(cudaGraphGetNodes(graph, nodes.data(), &n));
  std::vector<int> types;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    CHECK_OK(cudaGraphNodeGetType(node, &type));
    types.push_back(type);
  }
  CHECK(types == std::vector<int>{cudaGraphNodeTypeGraph, cudaGraphNodeTypeMemAlloc,
                                  cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeKernel,
                                  cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeMemFree,
                                  cudaGraphNodeTypeHost, cudaGraphNodeTypeMemset});
  Exec exec(graph);
  for (int turn = 1; turn <= 2; ++turn) {
    x.set(7);
    CHECK_OK(cudaGraphLaunch(exec, stream));
    CHECK_OK(cudaStreamSynchronize(stream));
    CHECK(pinned[kCount - 1] == 24);
    CHECK(calls == turn);
    CHECK(x.get() == 0x01010101);
  }
  // Outside a launch there is no memory at that address.
  CHECK(cudaMemset(scratch, 0, 4) == cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK_OK(cudaFreeHost(pinned));
}
