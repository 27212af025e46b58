// CUDA graphs through the runtime's API: put together by hand, changed, launched, used as programs do.
#include <cstdint>
#include <cstdlib>

#include "graph_support.cuh"

using namespace graph_tests;

// ---- by hand ------------------------------------------------------------------------------------

TEST_CASE("graph: nodes and edges are listed, added, removed") {
  Graph graph;
  Ints x(1);
  CHECK_OK(cudaGraphCreate(&graph.g, 0));
  CHECK(cudaGraphCreate(&graph.g, 1) == cudaErrorInvalidValue);
  cudaGetLastError();
  const cudaGraphNode_t a = kernel_node(graph, {}, add, x.p, 1);
  const cudaGraphNode_t b = kernel_node(graph, {a}, scale, x.p, 2);
  const cudaGraphNode_t c = kernel_node(graph, {a}, add, x.p, 5);
  cudaGraphNode_t d = nullptr;
  const cudaGraphNode_t both[] = {b, c};
  CHECK_OK(cudaGraphAddEmptyNode(&d, graph, both, 2));
  cudaGraphNode_t list[4] = {};
  std::size_t n = 4;
  CHECK_OK(cudaGraphGetRootNodes(graph, list, &n));
  CHECK(n == 1);
  CHECK(list[0] == a);
  CHECK(list[1] == nullptr);
  n = 2;  // less room than there is to tell
  CHECK_OK(cudaGraphNodeGetDependentNodes(a, list, nullptr, &n));
  CHECK(n == 2);
  CHECK(list[0] == b);
  CHECK(list[1] == c);
  n = 4;
  CHECK_OK(cudaGraphNodeGetDependencies(d, list, nullptr, &n));
  CHECK(n == 2);
  cudaGraphNode_t from[4], to[4];
  n = 4;
  CHECK_OK(cudaGraphGetEdges(graph, from, to, nullptr, &n));
  CHECK(n == 4);
  CHECK(from[3] == c);
  CHECK(to[3] == d);
  // Twice the same edge, one that is not there, one to itself.
  CHECK(cudaGraphAddDependencies(graph, &a, &b, nullptr, 1) == cudaErrorInvalidValue);
  CHECK(cudaGraphRemoveDependencies(graph, &b, &c, nullptr, 1) == cudaErrorInvalidValue);
  CHECK(cudaGraphAddDependencies(graph, &a, &a, nullptr, 1) == cudaErrorInvalidValue);
  // b and c are in no order yet: c first.
  CHECK_OK(cudaGraphAddDependencies(graph, &c, &b, nullptr, 1));
  {
    Exec exec(graph);
    CHECK_OK(cudaGraphLaunch(exec, nullptr));
    CHECK(x.get() == (1 + 1 + 5) * 2);
  }
  // A cycle is only found when the graph is to be executed.
  CHECK_OK(cudaGraphAddDependencies(graph, &b, &a, nullptr, 1));
  cudaGraphExec_t none = nullptr;
  CHECK(cudaGraphInstantiate(&none, graph, 0) == cudaErrorInvalidValue);
  cudaGraphInstantiateParams params{};
  CHECK(cudaGraphInstantiateWithParams(&none, graph, &params) == cudaErrorInvalidValue);
  CHECK(params.result_out == cudaGraphInstantiateInvalidStructure);
  CHECK(params.errNode_out != nullptr);
  CHECK_OK(cudaGraphRemoveDependencies(graph, &b, &a, nullptr, 1));
  CHECK_OK(cudaGraphDestroyNode(c));
  CHECK(count_nodes(graph) == 3);
  CHECK(count_edges(graph) == 2);
  CHECK(cudaGraphDestroyNode(c) == cudaErrorInvalidValue);
  x.set(1);
  CHECK_OK(cudaGraphInstantiateWithParams(&none, graph, &params));
  CHECK(params.result_out == cudaGraphInstantiateSuccess);
  CHECK_OK(cudaGraphLaunch(none, nullptr));
  CHECK(x.get() == 4);
  unsigned long long flags = 1;
  CHECK_OK(cudaGraphExecGetFlags(none, &flags));
  CHECK(flags == 0);
  CHECK_OK(cudaGraphExecDestroy(none));
  CHECK(cudaGraphLaunch(none, nullptr) == cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_CASE("graph: copies of every kind, to and from symbols, fills by element") {
  Graph graph;
  Ints x(2);
  CHECK_OK(cudaGraphCreate(&graph.g, 0));
  const int factors[2] = {10, 20}, constant = 3;
  int back = 0;
  cudaGraphNode_t to_device, to_constant, from_device, fill, copy;
  CHECK_OK(cudaGraphAddMemcpyNodeToSymbol(&to_device, graph, nullptr, 0, factor_on_device, factors,
                                          sizeof factors, 0, cudaMemcpyHostToDevice));
  CHECK_OK(cudaGraphAddMemcpyNodeToSymbol(&to_constant, graph, &to_device, 1, factor_constant,
                                          &constant, 4, 0, cudaMemcpyHostToDevice));
  const cudaGraphNode_t run = kernel_node(graph, {to_constant}, scale_by_symbols, x.p);
  CHECK_OK(cudaGraphAddMemcpyNodeFromSymbol(&from_device, graph, &run, 1, &back, factor_on_device,
                                            4, 4, cudaMemcpyDeviceToHost));
  CHECK(cudaGraphAddMemcpyNodeFromSymbol(&copy, graph, &run, 1, &back, factor_on_device, 4, 8,
                                         cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  cudaGetLastError();
  // 16-bit elements, in the left half of each row of 16 bytes.
  Ints rows(0);
  cudaMemsetParams box{};
  box.dst = rows.p;
  box.pitch = 16;
  box.value = 0xabcd;
  box.elementSize = 2;
  box.width = 4;
  box.height = 16;
  CHECK_OK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &box));
  int words[8] = {};
  cudaMemcpy3DParms cube{};
  cube.srcPtr = make_cudaPitchedPtr(rows.p, 16, 16, 16);
  cube.srcPos = make_cudaPos(4, 1, 0);
  cube.dstPtr = make_cudaPitchedPtr(words, 8, 8, 4);
  cube.extent = make_cudaExtent(8, 4, 1);
  cube.kind = cudaMemcpyDeviceToHost;
  CHECK_OK(cudaGraphAddMemcpyNode(&copy, graph, &fill, 1, &cube));
  Exec exec(graph);
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == 2 * 20 * 3);
  CHECK(back == 20);
  for (int i = 0; i < 8; ++i) CHECK(words[i] == (i % 2 ? 0 : static_cast<int>(0xabcdabcd)));

  cudaMemsetParams seen{};
  CHECK_OK(cudaGraphMemsetNodeGetParams(fill, &seen));
  CHECK(seen.value == 0xabcd);
  cudaMemcpy3DParms seen_copy{};
  CHECK_OK(cudaGraphMemcpyNodeGetParams(copy, &seen_copy));
  CHECK(seen_copy.extent.height == 4);
  CHECK(cudaGraphMemcpyNodeGetParams(fill, &seen_copy) == cudaErrorInvalidValue);
  // The executable graph has values of its own until it is told.
  box.value = 1;
  box.elementSize = 4;
  box.width = 2;
  CHECK_OK(cudaGraphMemsetNodeSetParams(fill, &box));
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(words[0] == static_cast<int>(0xabcdabcd));
  CHECK_OK(cudaGraphExecMemsetNodeSetParams(exec, fill, &box));
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(words[0] == 1);
  int first = 0;
  CHECK_OK(
      cudaGraphExecMemcpyNodeSetParams1D(exec, copy, &first, rows.p, 4, cudaMemcpyDeviceToHost));
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(first == 1);
  const int ones[2] = {1, 1};
  CHECK_OK(cudaGraphExecMemcpyNodeSetParamsToSymbol(exec, to_device, factor_on_device, ones, 8, 0,
                                                    cudaMemcpyHostToDevice));
  x.set(5);
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == 15);
  box.elementSize = 3;
  CHECK(cudaGraphMemsetNodeSetParams(fill, &box) == cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_CASE("graph: kernel nodes keep their own arguments, and can be given others") {
  Graph graph;
  Ints x(1);
  CHECK_OK(cudaGraphCreate(&graph.g, 0));
  int value = 4;
  void* args[] = {&x.p, &value};
  cudaKernelNodeParams params = params_of(reinterpret_cast<void*>(&add), args);
  cudaGraphNode_t node = nullptr;
  CHECK_OK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  value = 1000;
  Exec exec(graph);
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == 5);
  cudaKernelNodeParams seen{};
  CHECK_OK(cudaGraphKernelNodeGetParams(node, &seen));
  CHECK(seen.blockDim.x == kCount);
  CHECK(*static_cast<int*>(seen.kernelParams[1]) == 4);
  CHECK(seen.func == reinterpret_cast<void*>(&add));
  value = 6;
  CHECK_OK(cudaGraphExecKernelNodeSetParams(exec, node, &params));
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == 11);
  params.func = reinterpret_cast<void*>(&scale);  // another kernel altogether
  CHECK_OK(cudaGraphExecKernelNodeSetParams(exec, node, &params));
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == 66);
  // Arguments as one buffer.
  struct {
    int* p;
    int value;
  } buffer{x.p, 2};
  std::size_t size = sizeof buffer;
  void* extra[] = {reinterpret_cast<void*>(1), &buffer, reinterpret_cast<void*>(2), &size, nullptr};
  params.kernelParams = nullptr;
  params.extra = extra;
  CHECK_OK(cudaGraphExecKernelNodeSetParams(exec, node, &params));
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == 132);
  // What cannot be launched cannot be a node.
  params = params_of(reinterpret_cast<void*>(&add), args);
  params.blockDim = dim3(2048);
  CHECK(cudaGraphKernelNodeSetParams(node, &params) == cudaErrorInvalidConfiguration);
  params.blockDim = dim3(32);
  params.func = &value;
  CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params) ==
        cudaErrorInvalidDeviceFunction);
  cudaGetLastError();
  cudaLaunchAttributeValue attribute{};
  attribute.priority = -1;
  CHECK_OK(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributePriority, &attribute));
  attribute.priority = 0;
  CHECK_OK(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributePriority, &attribute));
  CHECK(attribute.priority == -1);
}

TEST_CASE("graph: nodes of an executable graph are switched off and on") {
  Graph graph;
  Ints x(1);
  CHECK_OK(cudaGraphCreate(&graph.g, 0));
  const cudaGraphNode_t a = kernel_node(graph, {}, add, x.p, 10);
  const cudaGraphNode_t b = kernel_node(graph, {a}, scale, x.p, 2);
  cudaGraphNode_t empty = nullptr;
  CHECK_OK(cudaGraphAddEmptyNode(&empty, graph, &b, 1));
  Exec exec(graph);
  unsigned enabled = 2;
  CHECK_OK(cudaGraphNodeSetEnabled(exec, a, 0));
  CHECK_OK(cudaGraphNodeGetEnabled(exec, a, &enabled));
  CHECK(enabled == 0);
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == 2);
  CHECK_OK(cudaGraphNodeSetEnabled(exec, a, 1));
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == 24);
  CHECK(cudaGraphNodeSetEnabled(exec, empty, 0) == cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_CASE("graph: child graphs, clones and their nodes") {
  Graph inner, graph, clone;
  Ints x(3);
  CHECK_OK(cudaGraphCreate(&inner.g, 0));
  CHECK_OK(cudaGraphCreate(&graph.g, 0));
  const cudaGraphNode_t in = kernel_node(inner, {}, add, x.p, 1);
  kernel_node(inner, {in}, scale, x.p, 10);
  const cudaGraphNode_t first = kernel_node(graph, {}, scale, x.p, 2);
  cudaGraphNode_t child = nullptr;
  CHECK_OK(cudaGraphAddChildGraphNode(&child, graph, &first, 1, inner));
  kernel_node(graph, {child}, add, x.p, 4);
  // The node has its own copy.
  kernel_node(inner, {}, add, x.p, 1000);
  cudaGraph_t own = nullptr;
  CHECK_OK(cudaGraphChildGraphNodeGetGraph(child, &own));
  CHECK(own != inner.g);
  CHECK(count_nodes(own) == 2);
  CHECK(cudaGraphDestroy(own) == cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK_OK(cudaGraphClone(&clone.g, graph));
  Exec exec(graph), of_clone(clone);
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == (3 * 2 + 1) * 10 + 4);
  x.set(3);
  CHECK_OK(cudaGraphLaunch(of_clone, nullptr));
  CHECK(x.get() == 74);
  cudaGraphNode_t twin = nullptr;
  CHECK_OK(cudaGraphNodeFindInClone(&twin, first, clone));
  CHECK(twin != first);
  int value = 5;
  void* args[] = {&x.p, &value};
  const cudaKernelNodeParams params = params_of(reinterpret_cast<void*>(&scale), args);
  CHECK_OK(cudaGraphExecKernelNodeSetParams(of_clone, twin, &params));
  CHECK(cudaGraphExecKernelNodeSetParams(of_clone, first, &params) == cudaErrorInvalidValue);
  x.set(1);
  CHECK_OK(cudaGraphLaunch(of_clone, nullptr));
  CHECK(x.get() == 64);
  CHECK(cudaGraphNodeFindInClone(&twin, in, clone) == cudaErrorInvalidValue);
  cudaGetLastError();
  // Another inner graph of the same shape.
  Graph other;
  CHECK_OK(cudaGraphCreate(&other.g, 0));
  const cudaGraphNode_t o = kernel_node(other, {}, add, x.p, 2);
  CHECK(cudaGraphExecChildGraphNodeSetParams(exec, child, other) ==
        cudaErrorGraphExecUpdateFailure);
  kernel_node(other, {o}, scale, x.p, 100);
  CHECK_OK(cudaGraphExecChildGraphNodeSetParams(exec, child, other));
  x.set(3);
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == 804);
  cudaGetLastError();
}

TEST_CASE("graph: events are recorded and waited for by nodes, host functions run in order") {
  Graph graph;
  Stream stream;
  Event event, other;
  std::vector<int> order;
  struct Call {
    std::vector<int>* order;
    int number;
    cudaError_t error;
  } calls[2] = {{&order, 1, cudaSuccess}, {&order, 2, cudaSuccess}};
  const cudaHostFn_t note = [](void* data) {
    Call& call = *static_cast<Call*>(data);
    call.order->push_back(call.number);
    call.error = cudaDeviceSynchronize();  // which a host function may not do
  };
  CHECK_OK(cudaGraphCreate(&graph.g, 0));
  cudaGraphNode_t record, wait, host[2];
  CHECK_OK(cudaGraphAddEventRecordNode(&record, graph, nullptr, 0, event));
  cudaHostNodeParams params{note, &calls[1]};
  CHECK_OK(cudaGraphAddHostNode(&host[1], graph, nullptr, 0, &params));
  params.userData = &calls[0];
  CHECK_OK(cudaGraphAddHostNode(&host[0], graph, &record, 1, &params));
  CHECK_OK(cudaGraphAddEventWaitNode(&wait, graph, &host[0], 1, event));
  CHECK_OK(cudaGraphAddDependencies(graph, &wait, &host[1], nullptr, 1));
  cudaEvent_t seen = nullptr;
  CHECK_OK(cudaGraphEventRecordNodeGetEvent(record, &seen));
  CHECK(seen == event.e);
  CHECK_OK(cudaGraphEventWaitNodeSetEvent(wait, other));
  CHECK_OK(cudaGraphEventWaitNodeGetEvent(wait, &seen));
  CHECK(seen == other.e);
  CHECK(cudaGraphEventRecordNodeGetEvent(wait, &seen) == cudaErrorInvalidValue);
  cudaGetLastError();
  Exec exec(graph);
  CHECK_OK(cudaGraphLaunch(exec, stream));
  CHECK(order == std::vector<int>{1, 2});
  CHECK(calls[0].error == cudaErrorNotPermitted);
  cudaGetLastError();
  CHECK_OK(cudaEventSynchronize(event));
}

TEST_CASE("graph: the generic functions for nodes of any type") {
  Graph graph;
  Ints x(0);
  CHECK_OK(cudaGraphCreate(&graph.g, 0));
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeMemset;
  params.memset.dst = x.p;
  params.memset.elementSize = 4;
  params.memset.value = 6;
  params.memset.width = kCount;
  params.memset.height = 1;
  cudaGraphNode_t fill, run, alloc;
  CHECK_OK(cudaGraphAddNode(&fill, graph, nullptr, nullptr, 0, &params));
  int value = 7;
  void* args[] = {&x.p, &value};
  params = {};
  params.type = cudaGraphNodeTypeKernel;
  params.kernel.func = reinterpret_cast<void*>(&scale);
  params.kernel.gridDim = dim3(1);
  params.kernel.blockDim = dim3(kCount);
  params.kernel.kernelParams = args;
  CHECK_OK(cudaGraphAddNode(&run, graph, &fill, nullptr, 1, &params));
  Exec exec(graph);
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == 42);
  value = 8;
  CHECK_OK(cudaGraphExecNodeSetParams(exec, run, &params));
  CHECK_OK(cudaGraphLaunch(exec, nullptr));
  CHECK(x.get() == 48);
  CHECK(cudaGraphNodeSetParams(fill, &params) == cudaErrorInvalidValue);
  params = {};
  params.type = cudaGraphNodeTypeMemAlloc;
  params.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
  params.alloc.poolProps.location.type = cudaMemLocationTypeDevice;
  params.alloc.bytesize = 100;
  CHECK_OK(cudaGraphAddNode(&alloc, graph, nullptr, nullptr, 0, &params));
  CHECK(params.alloc.dptr != nullptr);
  params = {};
  params.type = cudaGraphNodeTypeConditional;
  CHECK(cudaGraphAddNode(&alloc, graph, nullptr, nullptr, 0, &params) == cudaErrorNotSupported);
  cudaGetLastError();
}

TEST_CASE("graph: memory nodes") {
  Graph graph;
  Stream stream;
  CHECK_OK(cudaGraphCreate(&graph.g, 0));
  cudaMemAllocNodeParams params{};
  params.poolProps.allocType = cudaMemAllocationTypePinned;
  params.poolProps.location.type = cudaMemLocationTypeDevice;
  params.bytesize = kCount * 4;
  cudaGraphNode_t alloc;
  CHECK_OK(cudaGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
  int* const p = static_cast<int*>(params.dptr);
  kernel_node(graph, {alloc}, add, p, 9);
  CHECK(cudaGraphDestroyNode(alloc) == cudaErrorNotSupported);
  cudaGraph_t none = nullptr;
  CHECK(cudaGraphClone(&none, graph) == cudaErrorNotSupported);
  cudaGetLastError();
  int host = 0;
  {
    Exec exec(graph);
    CHECK_OK(cudaGraphLaunch(exec, stream));
    CHECK_OK(cudaStreamSynchronize(stream));
    CHECK_OK(cudaMemcpy(&host, p, 4, cudaMemcpyDeviceToHost));
    CHECK(host == 9);
    std::uint64_t bytes = 0;
    CHECK_OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &bytes));
    CHECK(bytes == kCount * 4);
    CHECK(cudaGraphLaunch(exec, stream) == cudaErrorInvalidValue);  // not freed yet
    cudaGetLastError();
    CHECK_OK(cudaFreeAsync(p, stream));
    CHECK_OK(cudaGraphLaunch(exec, stream));
    CHECK_OK(cudaFree(p));
    CHECK_OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &bytes));
    CHECK(bytes == 0);
    CHECK_OK(cudaDeviceGraphMemTrim(0));
  }
  Exec exec(graph, cudaGraphInstantiateFlagAutoFreeOnLaunch);
  CHECK_OK(cudaGraphLaunch(exec, stream));
  CHECK_OK(cudaGraphLaunch(exec, stream));
  CHECK_OK(cudaStreamSynchronize(stream));
  CHECK_OK(cudaMemcpy(&host, p, 4, cudaMemcpyDeviceToHost));
  CHECK(host == 9);  // fresh memory each time
  CHECK_OK(cudaFree(p));
}

TEST_CASE("graph: an update takes a graph of the same shape") {
  Stream stream;
  Ints x(1), y(1);
  const auto record = [&](int* p, int value, int nodes) {
    cudaGraph_t graph = nullptr;
    begin(stream);
    CHECK_OK(cudaMemsetAsync(p, 0, kCount * 4, stream));
    for (int i = 0; i < nodes; ++i) add<<<1, kCount, 0, stream>>>(p, value);
    CHECK_OK(cudaStreamEndCapture(stream, &graph));
    return graph;
  };
  Graph first{record(x.p, 1, 2)}, second{record(y.p, 5, 2)}, longer{record(x.p, 1, 3)};
  Exec exec(first);
  cudaGraphExecUpdateResultInfo info{};
  CHECK_OK(cudaGraphExecUpdate(exec, second, &info));
  CHECK(info.result == cudaGraphExecUpdateSuccess);
  CHECK_OK(cudaGraphLaunch(exec, stream));
  CHECK(x.get() == 1);
  CHECK(y.get() == 10);
  CHECK(cudaGraphExecUpdate(exec, longer, &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  // The same nodes with an edge less.
  Graph looser{record(x.p, 1, 2)};
  cudaGraphNode_t from = nullptr, to = nullptr;
  std::size_t edges = 1;
  CHECK(cudaGraphGetEdges(looser, &from, &to, nullptr, &edges) == cudaSuccess);
  CHECK_OK(cudaGraphRemoveDependencies(looser, &from, &to, nullptr, 1));
  CHECK(cudaGraphExecUpdate(exec, looser, &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  Graph swapped;
  begin(stream);
  add<<<1, kCount, 0, stream>>>(x.p, 1);
  add<<<1, kCount, 0, stream>>>(x.p, 1);
  CHECK_OK(cudaMemsetAsync(x.p, 0, 4, stream));
  CHECK_OK(cudaStreamEndCapture(stream, &swapped.g));
  CHECK(cudaGraphExecUpdate(exec, swapped, &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorNodeTypeChanged);
  CHECK(info.errorNode != nullptr);
  cudaGetLastError();
  // What failed has changed nothing.
  y.set(0);
  CHECK_OK(cudaGraphLaunch(exec, stream));
  CHECK(y.get() == 10);
}

TEST_CASE("graph: user objects live as long as who refers to them") {
  int destroyed = 0;
  const cudaHostFn_t destroy = [](void* n) { ++*static_cast<int*>(n); };
  cudaUserObject_t object = nullptr;
  CHECK(cudaUserObjectCreate(&object, &destroyed, destroy, 1, 0) == cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK_OK(cudaUserObjectCreate(&object, &destroyed, destroy, 1, cudaUserObjectNoDestructorSync));
  cudaGraph_t graph = nullptr;
  CHECK_OK(cudaGraphCreate(&graph, 0));
  CHECK_OK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  {
    Exec exec(graph);
    CHECK_OK(cudaGraphDestroy(graph));
    CHECK(destroyed == 0);
  }
  CHECK(destroyed == 1);
  CHECK_OK(cudaUserObjectCreate(&object, &destroyed, destroy, 2, cudaUserObjectNoDestructorSync));
  CHECK_OK(cudaUserObjectRetain(object, 1));
  CHECK_OK(cudaUserObjectRelease(object, 2));
  CHECK(destroyed == 1);
  CHECK_OK(cudaUserObjectRelease(object, 1));
  CHECK(destroyed == 2);
  CHECK(cudaUserObjectRelease(object, 1) == cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_CASE("graph: a picture for Graphviz") {
  Graph graph;
  Ints x(0);
  CHECK_OK(cudaGraphCreate(&graph.g, 0));
  const cudaGraphNode_t a = kernel_node(graph, {}, add, x.p, 1);
  kernel_node(graph, {a}, scale, x.p, 1);
  const char* folder = std::getenv("TEST_TMP");
  const std::string path = std::string(folder ? folder : "/tmp") + "/runtime_graph.dot";
  CHECK_OK(cudaGraphDebugDotPrint(graph, path.c_str(), cudaGraphDebugDotFlagsVerbose));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str().find("digraph") == 0);
  CHECK(text.str().find("\"node_0\" -> \"node_1\"") != std::string::npos);
  CHECK(text.str().find("add") != std::string::npos);
  CHECK(text.str().find("(64,1,1)") != std::string::npos);
  std::remove(path.c_str());
  CHECK(cudaGraphDebugDotPrint(graph, "/nowhere/x.dot", 0) == cudaErrorOperatingSystem);
  cudaGetLastError();
}

// ---- as programs use them -----------------------------------------------------------------------

TEST_CASE("program: a training step is recorded once and replayed until it has learned") {
  Stream stream;
  float *w, *target, *g;
  for (float** p : {&w, &target, &g}) CHECK_OK(cudaMalloc(p, 4));
  const float start = 0, goal = 3;
  CHECK_OK(cudaMemcpyAsync(w, &start, 4, cudaMemcpyHostToDevice, stream));
  CHECK_OK(cudaMemcpyAsync(target, &goal, 4, cudaMemcpyHostToDevice, stream));
  const auto train = [&] {
    gradient<<<1, 1, 0, stream>>>(w, target, g);
    step<<<1, 1, 0, stream>>>(w, g, 0.25f);
  };
  train();  // a warm-up, as frameworks do it
  Graph graph;
  begin(stream, cudaStreamCaptureModeThreadLocal);
  train();
  CHECK_OK(cudaStreamEndCapture(stream, &graph.g));
  Exec exec(graph);
  for (int i = 0; i < 20; ++i) CHECK_OK(cudaGraphLaunch(exec, stream));
  float learned = 0, expected = 0;
  for (int i = 0; i < 21; ++i) expected -= 0.25f * (2 * (expected - goal));
  CHECK_OK(cudaMemcpyAsync(&learned, w, 4, cudaMemcpyDeviceToHost, stream));
  CHECK_OK(cudaStreamSynchronize(stream));
  CHECK(learned == expected);
  for (float* p : {w, target, g}) CHECK_OK(cudaFree(p));
}

TEST_CASE("program: a decoding loop records each step anew and updates, as language models do") {
  constexpr int kTokens = 24;
  Stream stream;
  int* tokens = nullptr;
  CHECK_OK(cudaMalloc(&tokens, kTokens * 4));
  const int prompt[2] = {17, 4};
  CHECK_OK(cudaMemcpyAsync(tokens, prompt, 8, cudaMemcpyHostToDevice, stream));
  cudaGraphExec_t exec = nullptr;
  int made = 0;
  for (int position = 2; position < kTokens; ++position) {
    Graph graph;
    begin(stream, cudaStreamCaptureModeRelaxed);
    decode<<<1, 1, 0, stream>>>(tokens, position);
    CHECK_OK(cudaStreamEndCapture(stream, &graph.g));
    cudaGraphExecUpdateResultInfo info;
    if (!exec || cudaGraphExecUpdate(exec, graph, &info) != cudaSuccess) {
      if (exec) CHECK_OK(cudaGraphExecDestroy(exec));
      CHECK_OK(cudaGraphInstantiate(&exec, graph, 0));
      ++made;
    }
    CHECK_OK(cudaGraphLaunch(exec, stream));
  }
  CHECK(made == 1);
  int got[kTokens], want[kTokens] = {17, 4};
  for (int p = 2; p < kTokens; ++p) {
    int next = 0;
    for (int i = 0; i < p; ++i) next = (next * 31 + want[i]) % 1009;
    want[p] = next;
  }
  CHECK_OK(cudaMemcpyAsync(got, tokens, sizeof got, cudaMemcpyDeviceToHost, stream));
  CHECK_OK(cudaStreamSynchronize(stream));
  CHECK(std::memcmp(got, want, sizeof got) == 0);
  CHECK_OK(cudaGraphExecDestroy(exec));
  CHECK_OK(cudaFree(tokens));
}
