// Programs of runtime_streams.cu, which includes this file behind its kernels and helpers: whole ones and
// graphs.
#pragma once

// Programs.
Programs whole_programs() {
  return {
      {"pipeline",
       {"",
        [] {
          // Copy in, compute, copy out: three streams, two buffers that are used again and again.
          const cudaStream_t in = stream(), run = stream(), out = stream();
          int *from = pinned(), *to = pinned(), *x[2] = {device(), device()},
              *y[2] = {device(), device()};
          cudaEvent_t full[2], done[2], empty[2];
          for (int i = 0; i < 2; ++i) full[i] = event(), done[i] = event(), empty[i] = event();
          for (int i = 0; i < 10; ++i) {
            const int b = i % 2;
            wait(in, done[b]);  // not recorded in the first turns
            CHECK_OK(cudaMemcpyAsync(x[b], from, kBytes, cudaMemcpyHostToDevice, in));
            CHECK_OK(cudaEventRecord(full[b], in));
            wait(run, full[b]);
            wait(run, empty[b]);
            copy_in(run, x[b], y[b]);
            CHECK_OK(cudaEventRecord(done[b], run));
            wait(out, done[b]);
            CHECK_OK(cudaMemcpyAsync(to, y[b], kBytes, cudaMemcpyDeviceToHost, out));
            CHECK_OK(cudaEventRecord(empty[b], out));
          }
          CHECK_OK(cudaStreamSynchronize(out));
        }}},
      {"pipeline that forgets when a buffer is free",
       {"read by copy in stream 4 (non-blocking) and write by cudaMemcpyAsync in stream 3",
        [] {
          const cudaStream_t in = stream(), run = stream();
          int *from = pinned(), *x = device(), *y = device();
          const cudaEvent_t full = event();
          for (int i = 0; i < 3; ++i) {
            CHECK_OK(cudaMemcpyAsync(x, from, kBytes, cudaMemcpyHostToDevice, in));
            CHECK_OK(cudaEventRecord(full, in));
            wait(run, full);
            copy_in(run, x, y);
          }
        }}},
      {"fan out and in",
       {"",
        [] {
          const cudaStream_t main = stream();
          int *x = device(), *parts[4], *y = device();
          for (int*& p : parts) p = device();
          for (int turn = 0; turn < 3; ++turn) {
            fill_in(main, x);
            const cudaEvent_t ready = recorded(main);
            for (int* p : parts) {
              const cudaStream_t s = stream();
              wait(s, ready);
              copy_in(s, x, p);
              wait(main, recorded(s));
              CHECK_OK(cudaStreamDestroy(s));
            }
            sum<<<kGrid, kBlock, 0, main>>>(parts[0], parts[3], y);
          }
        }}},
      {"many launches",
       {"",
        [] {
          const cudaStream_t a = stream();
          int *x = device(), *y = device();
          for (int i = 0; i < 10000; ++i) increment<<<1, 32, 0, a>>>(i % 2 ? x : y);
        }}},
      {"many launches and a race at the end",
       {"write by increment in stream 3",
        [] {
          const cudaStream_t a = stream();
          int *x = device(), *y = device();
          for (int i = 0; i < 10000; ++i) increment<<<1, 32, 0, a>>>(i % 2 ? x : y);
          increment<<<1, 32, 0, stream()>>>(x);
        }}},
  };
}

// Graphs.
Programs graphs() {
  return {
      {"graph in streams that wait",
       {"",
        [] {
          const cudaStream_t a = stream(), b = stream();
          int *x = device(), *y = device(), *z = device();
          cudaGraph_t graph;
          cudaGraphExec_t exec;
          CHECK_OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
          fill_in(a, x);
          const cudaEvent_t fork = recorded(a), join = event();
          wait(b, fork);
          copy_in(b, x, y);
          copy_in(a, x, z);
          CHECK_OK(cudaEventRecord(join, b));
          wait(a, join);
          sum<<<kGrid, kBlock, 0, a>>>(y, z, x);
          CHECK_OK(cudaStreamEndCapture(a, &graph));
          CHECK_OK(cudaGraphInstantiate(&exec, graph, 0));
          // Launches of one graph wait for each other, in whatever stream.
          for (const cudaStream_t s : {a, b, a}) CHECK_OK(cudaGraphLaunch(exec, s));
          copy_in(a, x, y);
        }}},
      {"graph and a stream that does not wait",
       {"write by fill of a graph in stream 3 (non-blocking) and read by copy in stream 4",
        [] {
          const cudaStream_t a = stream(), b = stream();
          int *x = device(), *y = device();
          cudaGraph_t graph;
          cudaGraphExec_t exec;
          CHECK_OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
          fill_in(a, x);
          CHECK_OK(cudaStreamEndCapture(a, &graph));
          CHECK_OK(cudaGraphInstantiate(&exec, graph, 0));
          CHECK_OK(cudaGraphLaunch(exec, a));
          copy_in(b, x, y);
        }}},
      {"branches of a graph that meet",
       {"write by fill of a graph in stream 3 (non-blocking) and write by a memset node of a graph "
        "in stream 3",
        [] {
          const cudaStream_t a = stream();
          int* x = device();
          int one = 1;
          void* args[] = {&x, &one};
          cudaKernelNodeParams kernel{};
          kernel.func = reinterpret_cast<void*>(&fill);
          kernel.gridDim = dim3(kGrid);
          kernel.blockDim = dim3(kBlock);
          kernel.kernelParams = args;
          cudaMemsetParams box{};
          box.dst = x;
          box.elementSize = 4;
          box.width = kCount;
          box.height = 1;
          cudaGraph_t graph;
          cudaGraphExec_t exec;
          cudaGraphNode_t node;
          CHECK_OK(cudaGraphCreate(&graph, 0));
          CHECK_OK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
          CHECK_OK(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &box));
          CHECK_OK(cudaGraphInstantiate(&exec, graph, 0));
          CHECK_OK(cudaGraphLaunch(exec, a));
        }}},
  };
}

// Graphs, more of them.
Programs more_graphs() {
  return {
      {"two chains of a graph",
       {"write by fill of a graph in stream 3 (non-blocking) and read by copy of a graph in stream "
        "3",
        [] {
          // fill writes x; a fill of y, a copy of y and one of x are a chain beside it.
          const cudaStream_t a = stream(), b = stream();
          int *x = device(), *y = device(), *z = device();
          cudaGraph_t graph;
          cudaGraphExec_t exec;
          CHECK_OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
          wait(b, recorded(a));
          fill_in(a, x);
          fill_in(b, y);
          copy_in(b, y, z);
          copy_in(b, x, y);
          wait(a, recorded(b));
          CHECK_OK(cudaStreamEndCapture(a, &graph));
          CHECK_OK(cudaGraphInstantiate(&exec, graph, 0));
          CHECK_OK(cudaGraphLaunch(exec, a));
        }}},
      {"a child graph behind what stands before it",
       {"",
        [] {
          const cudaStream_t a = stream();
          int *x = device(), *y = device();
          cudaGraph_t child, graph;
          cudaGraphExec_t exec;
          CHECK_OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
          copy_in(a, x, y);
          CHECK_OK(cudaStreamEndCapture(a, &child));
          cudaMemsetParams box{};
          box.dst = x;
          box.elementSize = 4;
          box.width = kCount;
          box.height = 1;
          cudaGraphNode_t first, other, then;
          CHECK_OK(cudaGraphCreate(&graph, 0));
          CHECK_OK(cudaGraphAddEmptyNode(&other, graph, nullptr, 0));
          CHECK_OK(cudaGraphAddMemsetNode(&first, graph, nullptr, 0, &box));
          CHECK_OK(cudaGraphAddChildGraphNode(&then, graph, &first, 1, child));
          CHECK_OK(cudaGraphInstantiate(&exec, graph, 0));
          CHECK_OK(cudaGraphLaunch(exec, a));
        }}},
      {"events in graphs",
       {"",
        [] {
          const cudaStream_t a = stream(), b = stream();
          int *x = device(), *y = device();
          const cudaEvent_t e = event();
          cudaGraph_t graph;
          cudaGraphExec_t exec;
          CHECK_OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
          fill_in(a, x);
          CHECK_OK(cudaEventRecordWithFlags(e, a, cudaEventRecordExternal));
          CHECK_OK(cudaStreamEndCapture(a, &graph));
          CHECK_OK(cudaGraphInstantiate(&exec, graph, 0));
          CHECK_OK(cudaGraphLaunch(exec, a));
          wait(b, e);
          copy_in(b, x, y);
        }}},
  };
}
