/* Optional C functions of the virtual GPU, found at run time with dlsym(RTLD_DEFAULT, ...): a program
   that uses them runs unchanged on a real GPU, where they do not exist. */
#ifndef VGPU_H
#define VGPU_H
#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface, 1. */
int vgpuPresent(void);
/* Names the allocation that holds the device pointer, for counters and messages. 0: done, 1: no such allocation. */
int vgpuNameAllocation(const void* device_pointer, const char* name);
/* Turns counting of the following launches on (not 0) or off. On at start. */
void vgpuSetCounters(int on);
/* Counters and modelled limits of the last launch as JSON (see profile/README section in README.md);
   "{}" before the first. The text lives until the next call in the same thread. */
const char* vgpuLastLaunchJson(void);
/* One number of it by JSON pointer, for example "/global/load/sectors". NaN when there is none. */
double vgpuLastLaunchCounter(const char* json_pointer);
/* The same as text: counters, limits with the largest marked, the five source lines that cost most on it. */
const char* vgpuLastLaunchReport(void);
/* Host threads for the following launches; 0: all cores (as VGPU_THREADS says at start). */
void vgpuSetThreads(int threads);
/* The cache model for the following launches: 0 off, 1 on with an L2 that is empty when a launch begins,
   2 on with the L2 that the launch before left (as VGPU_CACHE says at start). Costs time; for launches
   that are counted. */
void vgpuSetCacheModel(int on);
/* Predicted time of the following launches that are counted: 0 off, 1 on, 2 on with only those blocks
   executed that it needs, so that large launches take seconds and leave incomplete results (as VGPU_TIME
   says at start). 4 more: as if each launch were a node of a CUDA graph that is replayed. The first
   launch after the call finds nothing in the L2, later ones what those before have left. */
void vgpuSetTime(int mode);
/* Predicted microseconds of all launches since vgpuSetTime() was called last, one after the other; NaN
   where one of them has no predicted time. launches: how many they are; null: not wanted. */
double vgpuPredictedTime(int* launches);
/* Writes who touches what in one block of a launch to come, as JSON: "KERNEL:BLOCK[@LAUNCH][:FILE]", see
   Traces in README.md; null: none any longer. 0: done, 1: not understood (and said on stderr). */
int vgpuTrace(const char* spec);
/* Begins a timeline (see Timeline in README.md) that is written to the file when the program ends, or
   at the next call; null begins none. 0: done, 1: a file cannot be written (and said on stderr). */
int vgpuTimeline(const char* file);
/* Microseconds that the host has reached on the timeline's virtual clock: calls, copies over the link and
   kernels that it has waited for. Without a timeline under way the first call begins one that no file
   gets, at 0. Two calls around a part of a program say how long a GPU would take for it. */
double vgpuClock(void);
/* Collects a page of a look inside the kernels of the launches to come (see A look inside in README.md),
   which is written to the file when the program ends, or at the next call; null begins none. 0: done, 1: a
   file cannot be written (and said on stderr). */
int vgpuLook(const char* file);
/* Findings of the checks (VGPU_CHECK) so far. */
int vgpuFindings(void);

#ifdef __cplusplus
}
#endif
#endif
