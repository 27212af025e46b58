// Programmatic dependent launches: a kernel that may begin before the one in front of it has ended waits for
// that (cudaGridDependencySynchronize) before it touches what the other touches. Part of runtime_streams.cu.
#pragma once

enum Waits { kNobody, kAll, kOneForTheBlock };

// y = x + 1, and a kernel behind this one may begin at once.
template <Waits kWaits, bool kTriggers = true>
__global__ void step(const int* x, int* y) {
#if __CUDA_ARCH__ >= 900
  if (kTriggers) cudaTriggerProgrammaticLaunchCompletion();
  if (kWaits == kAll || (kWaits == kOneForTheBlock && threadIdx.x == 0))
    cudaGridDependencySynchronize();
#endif
  if (kWaits == kOneForTheBlock) __syncthreads();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i] + 1;
}

void launch_step(void (*kernel)(const int*, int*), const int* x, int* y, cudaStream_t s,
                 bool programmatic = true) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = programmatic;
  cudaLaunchConfig_t config{};
  config.gridDim = kGrid;
  config.blockDim = kBlock;
  config.stream = s;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK_OK(cudaLaunchKernelEx(&config, kernel, x, y));
}

// One step writes y, the next reads it.
std::function<void()> two_steps(void (*first)(const int*, int*), void (*second)(const int*, int*),
                                bool programmatic = true) {
  return [=] {
    int *x = device(), *y = device(), *z = device();
    const cudaStream_t s = stream();
    launch_step(first, x, y, s, false);
    launch_step(second, y, z, s, programmatic);
  };
}

// Each step reads what the one in front of it has written, the last one also what the first has.
std::function<void()> three_steps(void (*second)(const int*, int*)) {
  return [=] {
    int *x = device(), *y = device(), *z = device();
    const cudaStream_t s = stream();
    launch_step(step<kAll>, x, y, s);
    launch_step(second, x, z, s);
    launch_step(step<kAll>, y, z + 0, s);
  };
}

Programs programmatic() {
  return {
      {"a dependent launch reads without a wait",
       {"write by step<(Waits)1, true> in stream 3 (non-blocking) and read by step<(Waits)0, true> "
        "in "
        "stream 3 (non-blocking) at ",
        two_steps(step<kAll>, step<kNobody>)}},
      {"a dependent launch writes without a wait what the kernel in front reads",
       {"before a griddepcontrol.wait (cudaGridDependencySynchronize()): the launch is a "
        "programmatic "
        "dependent one, which may begin before the kernel in front of it has ended",
        [] {
          int *x = device(), *y = device(), *z = device();
          const cudaStream_t s = stream();
          launch_step(step<kAll>, x, y, s);
          launch_step(step<kNobody>, z, x, s);
        }}},
      {"a dependent launch that waits", {"", two_steps(step<kAll>, step<kAll>)}},
      {"a dependent launch in which one thread waits for the block",
       {"", two_steps(step<kAll>, step<kOneForTheBlock>)}},
      {"a launch that is no dependent one", {"", two_steps(step<kAll>, step<kNobody>, false)}},
      {"a kernel in front that lets nobody begin",
       {"", two_steps(step<kAll, false>, step<kNobody>)}},
      {"a copy in front of a dependent launch",
       {"",
        [] {
          int *x = device(), *y = device(), *z = device();
          const cudaStream_t s = stream();
          launch_step(step<kAll>, x, y, s);
          CHECK_OK(cudaMemcpyAsync(z, y, kBytes, cudaMemcpyDeviceToDevice, s));
          launch_step(step<kNobody>, z, x, s);
        }}},
      {"a chain of dependent launches that wait", {"", three_steps(step<kAll>)}},
      {"a chain of dependent launches, of which one waits for none",
       {"write by step<(Waits)1, true> in stream 3 (non-blocking) and read by step<(Waits)1, true>",
        three_steps(step<kNobody>)}},
      {"a launch behind a chain that waits for none",
       {"",
        [] {
          int *x = device(), *y = device(), *z = device();
          const cudaStream_t s = stream();
          launch_step(step<kAll>, x, y, s);
          launch_step(step<kNobody>, x, z, s);
          launch_step(step<kNobody>, y, z, s, false);
        }}},
  };
}
