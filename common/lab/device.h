// The device that programs run on, and the functions that only a virtual one has.
#pragma once

#include <string>

namespace lab {

struct Device {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int sm_count = 0;
  bool is_virtual = false;  // the virtual GPU: no time of its own, but counters
  double memory_bytes = 0, l2_bytes = 0;
  double clock_hz = 0;          // peak SM clock
  double dram_bytes_per_s = 0;  // ceilings for "share of the bound"; 0 where unknown
  double fp32_flop_per_s = 0;
  double tensor_flop_per_s = 0;  // fp16 products, fp32 sums
  std::string ceilings;          // where these two come from
};

// Device 0. Throws LackError in words when there is none.
Device open_device();

// Throws LackError when device_bytes and host_bytes are not free, before anything is taken. On the
// virtual GPU both come out of the host's memory.
void require_memory(const Device& device, double device_bytes, double host_bytes,
                    const std::string& what);

// The virtual GPU's optional functions (common/vgpu), found at run time. On a real GPU present() is
// false and the others do nothing and return nothing (NaN, "", 0).
namespace vgpu {
bool present();
void name_allocation(const void* pointer, const std::string& name);
void set_counters(bool on);
void set_cache_model(bool on);  // hit rates among the counters; an order of magnitude slower
double counter(const std::string& json_pointer);  // of the last launch: "/global/load/sectors"
std::string launch_json();
std::string launch_report();
// Where the host is on the virtual clock of calls, copies and kernels, in microseconds (VGPU_TIMELINE
// draws the same). NaN where there is no such clock.
double clock_us();
// Collects a page of a look inside the kernels that run from now on, which the virtual GPU writes at the
// program's end. False: it cannot write the file, and has said so.
bool look(const std::string& file);
bool can_look();  // false: a GPU, or a virtual one of before there were such pages
int findings();   // races, reads of what nobody wrote, missed barriers so far

// Predicted times. Launches within the life of a Predicting(true) get one; Launched::in_graph: as nodes of
// a CUDA graph, which is how a GPU's steps are measured.
enum class Launched { in_stream, in_graph };
bool can_predict();         // false: a GPU, or a virtual one of before there were predictions
bool prediction_refused();  // by the environment: VGPU_TIME=0
void predict_by_samples();  // from now on only the blocks that a prediction needs are executed
bool predicts_by_samples();
class Predicting {
 public:
  explicit Predicting(bool on, Launched how = Launched::in_stream);
  ~Predicting();
  Predicting(const Predicting&) = delete;
  Predicting& operator=(const Predicting&) = delete;
  // Of all launches so far; NaN where one of them has none, or the device does not say it.
  double us() const;

 private:
  bool on_;
};
}  // namespace vgpu

}  // namespace lab
