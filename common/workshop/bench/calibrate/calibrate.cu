// Measures the constants that the virtual GPU predicts times with, and prints each beside its value
// there (make calibrate). On a GPU the figures are measured: clocks by clock64(), microseconds by
// events. On the virtual one they are predicted, and each must give back the constant it measures.
//
// Each figure is a difference between two lengths of the same kernel, so that its launch, its begin
// and its end cancel.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../../../json/json.h"
#include "../../../lab.cuh"
#include "../../../lab/device.h"
#include "../../../lab/errors.h"
#include "../../../lab/files.h"
#include "../../../lab/flags.h"
#include "../../../lab/program.h"
#include "../../../lab/timing.h"
#include "constants.h"
#include "kernels.cuh"

namespace {

using namespace calibrate;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int kSamples = 9;                           // of each length, on a GPU; the least counts
constexpr size_t kSmallRing = 1024;                   // lines of 128 bytes: stays in the L2
constexpr size_t kLargeRing = 16384, kStride = 2048;  // each line once: comes from DRAM
constexpr int kStreamThreads = 512;

// What of a prediction may differ from its constant: the turns of loops (some 28 clocks for 96
// barriers), fractions of sectors, whole clocks.
constexpr double kTolerance = 0.02;
// Two codes that do the same differ by some 90 clocks, as ptxas has them for 7.5 by some 150.
constexpr double kBarrierSlackUs = 0.08, kBarrierSlackUs75 = 0.1;

struct Row {
  std::string what, constant, unit;
  double measured = kNone, model = kNone, slack = 0;  // in `unit`, beside kTolerance
  std::string source = {}, lacking = {};              // lacking: why nothing was measured

  double ratio() const { return measured / model; }
  bool off() const {
    return std::isfinite(ratio()) && std::abs(measured - model) > kTolerance * model + slack;
  }
};

// What one more turn of a kernel takes.
struct Turn {
  double us = kNone, clocks = kNone;
  std::string lacking;
  Turn operator-(const Turn& other) const {
    return {us - other.us, clocks - other.clocks, lacking.empty() ? other.lacking : lacking};
  }
};

struct Event {
  cudaEvent_t event = nullptr;
  Event() { lab::check(cudaEventCreate(&event)); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};

class Bench {
 public:
  Bench(const lab::Device& device, const Model& model, const std::string& only)
      : device_(device),
        model_(model),
        only_(only),
        clocks_(1, "clocks"),
        sink_(size_t(device.sm_count) * 1024, "sink"),
        arrived_(1, "arrived"),
        memory_(std::max(kLargeRing * kStride, stream_bytes()), "memory"),
        flushed_(device.is_virtual ? 1 : size_t(2 * device.l2_bytes), "flushed") {
    lab::check(cudaMemset(arrived_.data(), 0, sizeof(uint32_t)));
    lab::check(cudaMemset(memory_.data(), 0, memory_.size()));
  }

  void run_all() {
    if (!device_.is_virtual) warm_up();
    memory();
    cluster();
    shared();
    arithmetic();
    barriers();
    launches();
    bulk();
    bandwidth();
  }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  using Launch = std::function<void(int)>;

  bool newer_than(int major) const { return device_.major >= major; }
  size_t stream_bytes() const {
    return size_t(device_.sm_count) * kStreamThreads * 16 * kParallel * size_t(stream_turns(true));
  }
  // Turns of the stream from DRAM: on a GPU some hundred megabytes beyond what the L2 keeps.
  int stream_turns(bool more) const {
    if (device_.is_virtual) return more ? 12 : 4;
    const double turn = double(device_.sm_count) * kStreamThreads * 16 * kParallel;
    const int least = int(std::ceil(4 * device_.l2_bytes / turn)) + 8;
    return more ? 3 * least : least;
  }

  // ---- how time is taken ----

  // A GPU that was idle has low clocks.
  void warm_up() {
    const auto round = [&](int) {
      special<8><<<device_.sm_count, 256>>>(1000, 1, clocks_.data(), sink_.data());
    };
    const auto finish = [] {
      lab::check(cudaGetLastError());
      lab::check(cudaDeviceSynchronize());
    };
    lab::warm_up(round, finish, 1, 300);
  }

  Turn predicted(const Launch& launch, int n) {
    const lab::vgpu::Predicting predicting(true);
    launch(n);
    lab::check(cudaGetLastError());
    lab::check(cudaDeviceSynchronize());
    Turn turn;
    turn.us = lab::vgpu::counter("/predicted/us");
    turn.clocks = lab::vgpu::counter("/predicted/clocks");
    if (!std::isfinite(turn.us)) {
      const json::Value report = json::parse_or_null(lab::vgpu::launch_json());
      const json::Value* const why =
          report.is_object() ? report.find_path("/predicted/why") : nullptr;
      turn.lacking = "no prediction: " + (why && why->is_string() ? why->get<std::string>()
                                                                  : std::string("none was made"));
    }
    return turn;
  }

  // The least of some samples.
  Turn measured(const Launch& launch, int n, bool cold) {
    Turn best;
    best.us = best.clocks = 1e300;
    Event begin, end;
    for (int i = 0; i < kSamples + 2; ++i) {
      if (cold) lab::check(cudaMemset(flushed_.data(), i, flushed_.size()));
      lab::check(cudaEventRecord(begin.event));
      launch(n);
      lab::check(cudaEventRecord(end.event));
      lab::check(cudaGetLastError());
      lab::check(cudaDeviceSynchronize());
      if (i < 2) continue;
      float ms = 0;
      lab::check(cudaEventElapsedTime(&ms, begin.event, end.event));
      best.us = std::min(best.us, 1e3 * double(ms));
      best.clocks = std::min(best.clocks, double(clocks_.download()[0]));
    }
    return best;
  }

  // One more turn of launch(n), from two lengths. cold: nothing of it is in the L2.
  Turn turn(const Launch& launch, int few, int many, bool cold = false) {
    const auto time = [&](int n) {
      return device_.is_virtual ? predicted(launch, n) : measured(launch, n, cold);
    };
    const Turn less = time(few), more = time(many);
    Turn one = more - less;
    one.us /= many - few;
    one.clocks /= many - few;
    return one;
  }
  // The same where launch(n) launches n kernels that are alike: the virtual GPU tells of the last.
  Turn launch_of(const Launch& launch) {
    if (device_.is_virtual) return predicted(launch, 2);
    return turn(launch, 100, 1100);
  }

  // ---- rows ----

  bool wanted(const std::string& constant) const {
    return only_.empty() || constant.starts_with(only_);
  }
  template <class Measure>
  void add(const std::string& what, const std::string& constant, const std::string& unit,
           const std::string& lacking, const Measure& measure, double slack = 0) {
    if (!wanted(constant)) return;
    Row row{what, constant, unit};
    row.slack = slack;
    const Constant known = model_.at(constant);
    row.model = known.value;
    row.source = known.source;
    row.lacking = lacking;
    if (lacking.empty()) row.measured = measure(row);
    rows_.push_back(std::move(row));
  }
  static double clocks(Row& row, const Turn& turn, double instructions) {
    row.lacking = turn.lacking;
    return turn.clocks / instructions;
  }
  static double us(Row& row, const Turn& turn) {
    row.lacking = turn.lacking;
    return turn.us;
  }

  // A ring of pointers through `count` places in random order.
  void make_ring(size_t count, size_t stride) {
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t(0));
    std::shuffle(order.begin() + 1, order.end(), std::mt19937(7));
    std::vector<char> bytes(count * stride);
    for (size_t i = 0; i < count; ++i) {
      const auto next = uint64_t(memory_.data() + order[(i + 1) % count] * stride);
      std::memcpy(bytes.data() + order[i] * stride, &next, sizeof next);
    }
    lab::check(cudaMemcpy(memory_.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  }

  void memory() {
    const auto l1 = [&](int n) {
      l1_chase<<<1, 1>>>(memory_.data(), n, clocks_.data(), sink_.data());
    };
    const auto l2 = [&](int n) {
      l2_chase<<<1, 1>>>(memory_.data(), n, clocks_.data(), sink_.data());
    };
    add("L1: each load at the address that the last one loaded", "l1_latency", "clocks", "",
        [&](Row& row) {
          make_ring(32, 128);
          return clocks(row, turn(l1, 8, 24), kUnroll);
        });
    add("L2: the same", "l2_latency", "clocks", "", [&](Row& row) {
      make_ring(kSmallRing, 128);
      return clocks(row, turn(l2, 32, 96), kUnroll);
    });
    add("DRAM: the same", "dram_latency", "clocks", "", [&](Row& row) {
      make_ring(kLargeRing, kStride);
      return clocks(row, turn(l2, 16, 48, true), kUnroll);
    });
  }

  // Launches with an attribute.
  template <class... Parameters, class... Arguments>
  static void launch_with(const cudaLaunchAttribute& attribute, int blocks, int threads,
                          void (*kernel)(Parameters...), Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(blocks));
    config.blockDim = dim3(unsigned(threads));
    cudaLaunchAttribute copy = attribute;
    config.attrs = &copy;
    config.numAttrs = 1;
    lab::check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
  }

  void cluster() {
    const std::string lacking = newer_than(9) ? "" : "not on this device: clusters (from 9.0 on)";
    cudaLaunchAttribute pair = {};
    pair.id = cudaLaunchAttributeClusterDimension;
    pair.val.clusterDim = {2, 1, 1};
    const auto chase = [&](int n) {
      launch_with(pair, 2, 32, cluster_chase, n, clocks_.data(), sink_.data());
    };
    const auto stream = [&](int n) {
      launch_with(pair, 2, 1024, cluster_stream, n, clocks_.data(), sink_.data());
    };
    add("shared memory of another block: a chain of loads", "remote_shared_latency", "clocks",
        lacking, [&](Row& row) { return clocks(row, turn(chase, 8, 24), kUnroll); });
    add("shared memory of another block: many warps", "remote_bytes_per_clock", "bytes/clock",
        lacking, [&](Row& row) { return 1024 * 16 / clocks(row, turn(stream, 8, 24), kParallel); });
  }

  void shared() {
    add("LDS: a chain", "shared_latency", "clocks", "", [&](Row& row) {
      const auto chase = [&](int n) { shared_chase<<<1, 32>>>(n, clocks_.data(), sink_.data()); };
      return clocks(row, turn(chase, 8, 24), kUnroll);
    });
    add("LDSM: a chain", "matrix_latency", "clocks", "", [&](Row& row) {
      const auto chase = [&](int n) { matrix_chase<<<1, 32>>>(n, clocks_.data(), sink_.data()); };
      return clocks(row, turn(chase, 8, 24), kUnroll);
    });
  }

  // Clocks of one instruction's unit: two warps for each of the four schedulers.
  void arithmetic() {
    constexpr double kRate = 2 * kUnroll;
    if (wanted("tensor_chain")) {  // no constant: the compiler's stall counts say it
      Row row{"HMMA: a chain of sums", "tensor_chain", "clocks"};
      const auto chain = [&](int n) { tensor<1><<<1, 32>>>(n, 0, clocks_.data(), sink_.data()); };
      row.measured = clocks(row, turn(chain, 8, 24), kUnroll);
      row.source = "no constant: the stall counts of ptxas contain it";
      rows_.push_back(row);
    }
    add("HMMA: of one scheduler, each", "tensor_interval", "clocks", "", [&](Row& row) {
      const auto many = [&](int n) { tensor<8><<<1, 256>>>(n, 0, clocks_.data(), sink_.data()); };
      return clocks(row, turn(many, 8, 24), kRate);
    });
    add("MUFU: a chain", "special_latency", "clocks", "", [&](Row& row) {
      const auto chain = [&](int n) { special<1><<<1, 32>>>(n, 1, clocks_.data(), sink_.data()); };
      return clocks(row, turn(chain, 8, 24), kUnroll);
    });
    add("MUFU: of one scheduler, each", "special", "clocks", "", [&](Row& row) {
      const auto many = [&](int n) { special<8><<<1, 256>>>(n, 1, clocks_.data(), sink_.data()); };
      return clocks(row, turn(many, 8, 24), kRate);
    });
    add("F2I: a chain", "special_latency", "clocks", "", [&](Row& row) {
      const auto chain = [&](int n) { convert<1><<<1, 32>>>(n, 1, clocks_.data(), sink_.data()); };
      return clocks(row, turn(chain, 8, 24), kUnroll);
    });
    add("F2I: of one scheduler, each", "special", "clocks", "", [&](Row& row) {
      const auto many = [&](int n) { convert<8><<<1, 256>>>(n, 1, clocks_.data(), sink_.data()); };
      return clocks(row, turn(many, 8, 24), kRate);
    });
  }

  void barriers() {
    add("barrier of a block of four warps", "barrier_latency", "clocks", "", [&](Row& row) {
      const auto barriers = [&](int n) { block_barrier<<<1, 128>>>(n, clocks_.data()); };
      return clocks(row, turn(barriers, 8, 24), kBarriers);
    });
    int cooperative = 0;
    lab::check(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
    const std::string lacking = cooperative ? "" : "not on this device: cooperative launches";
    cudaLaunchAttribute together = {};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    add(
        "barrier of the grid, beyond what its block executes", "grid_barrier_us", "us", lacking,
        [&](Row& row) {
          const auto all = [&](int n) {
            // Few blocks: what many arrivals at one address cost is not the constant's.
            launch_with(together, 8, 128, grid_barrier, n, clocks_.data());
          };
          const auto alone = [&](int n) {
            grid_barrier_alone<<<1, 128>>>(n, arrived_.data(), clocks_.data());
          };
          const int few = device_.is_virtual ? 4 : 20, many = device_.is_virtual ? 12 : 220;
          return us(row, turn(all, few, many) - turn(alone, few, many));
        },
        device_.major == 7 ? kBarrierSlackUs75 : kBarrierSlackUs);
    add("cooperative launch, beyond another", "cooperative_us", "us", lacking, [&](Row& row) {
      const auto one = [&](int n) {
        for (int i = 0; i < n; ++i) empty<<<1, 32>>>();
      };
      const auto with = [&](int n) {
        for (int i = 0; i < n; ++i) launch_with(together, 1, 32, empty);
      };
      return us(row, launch_of(with) - launch_of(one));
    });
  }

  // The model counts the fetch of a kernel's first instructions to its blocks, not to the launch.
  double beyond_fetch(double us) const {
    return us - model_.at("code_latency").value / model_.clock_mhz();
  }

  void launches() {
    add("launch of an empty kernel into a stream", "launch_us", "us", "", [&](Row& row) {
      const auto one = [&](int n) {
        for (int i = 0; i < n; ++i) empty<<<1, 32>>>();
      };
      return beyond_fetch(us(row, launch_of(one)));
    });
    add("the same as a node of a graph", "graph_node_us", "us", "", [&](Row& row) {
      const auto nodes = [&](int n) {
        cudaStream_t stream = nullptr;
        lab::check(cudaStreamCreate(&stream));
        lab::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < n; ++i) empty<<<1, 32, 0, stream>>>();
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t exec = nullptr;
        lab::check(cudaStreamEndCapture(stream, &graph));
        lab::check(cudaGraphInstantiate(&exec, graph, 0));
        lab::check(cudaGraphDestroy(graph));
        lab::check(cudaStreamDestroy(stream));
        return exec;
      };
      if (device_.is_virtual) {
        cudaGraphExec_t exec = nodes(2);
        const Turn one = predicted([&](int) { lab::check(cudaGraphLaunch(exec, nullptr)); }, 1);
        lab::check(cudaGraphExecDestroy(exec));
        return beyond_fetch(us(row, one));
      }
      cudaGraphExec_t few = nodes(100), many = nodes(1100);
      const Turn one = turn(
          [&](int n) { lab::check(cudaGraphLaunch(n == 100 ? few : many, nullptr)); }, 100, 1100);
      lab::check(cudaGraphExecDestroy(few));
      lab::check(cudaGraphExecDestroy(many));
      return beyond_fetch(us(row, one));
    });
  }

  template <int copies>
  Turn chain_of() {
    return turn(
        [&](int n) {
          bulk_chain<copies><<<1, 32>>>(memory_.data(), n, clocks_.data(), sink_.data());
        },
        16, 48);
  }
  void bulk() {
    const std::string lacking =
        newer_than(9) ? "" : "not on this device: bulk copies (from 9.0 on)";
    add("bulk copy of 64 bytes: a chain, beyond its mbarrier", "bulk_latency", "clocks", lacking,
        [&](Row& row) { return clocks(row, chain_of<1>() - chain_of<0>(), 1); });
    add("bulk copies of 64 bytes: of the SM, each", "bulk_interval", "clocks", lacking,
        [&](Row& row) {
          const auto stream = [&](int n) {
            bulk_stream<<<1, 32 * kCopyingWarps>>>(memory_.data(), n, clocks_.data(), sink_.data());
          };
          // (Many, since the first copies come from DRAM.)
          return clocks(row, turn(stream, 16, 64), kCopyingWarps * kCopies);
        });
  }

  void bandwidth() {
    const auto* data = reinterpret_cast<const uint4*>(memory_.data());
    add("L2: bytes of one SM while all ask", "l2_bytes_per_clock", "bytes/clock", "",
        [&](Row& row) {
          const auto stream = [&](int n) {
            l2_stream<<<device_.sm_count, kStreamThreads>>>(data, 65536, n, clocks_.data(),
                                                            sink_.data());
          };
          return kStreamThreads * 16.0 * kParallel / clocks(row, turn(stream, 8, 24), 1);
        });
    add("DRAM: read once", "dram_gb_s", "GB/s", "", [&](Row& row) {
      const auto stream = [&](int n) {
        dram_stream<<<device_.sm_count, kStreamThreads>>>(data, n, clocks_.data(), sink_.data());
      };
      const double bytes = double(device_.sm_count) * kStreamThreads * 16 * kParallel;
      return bytes / us(row, turn(stream, stream_turns(false), stream_turns(true), true)) / 1e3;
    });
  }

  const lab::Device& device_;
  const Model& model_;
  const std::string only_;
  lab::DeviceArray<long long> clocks_;
  lab::DeviceArray<uint64_t> sink_;
  lab::DeviceArray<uint32_t> arrived_;
  lab::DeviceArray<char> memory_, flushed_;
  std::vector<Row> rows_;
};

// The constants of that source that no row is about.
std::vector<std::string> unmeasured(const Model& model, const std::vector<Row>& rows,
                                    const char* source) {
  std::vector<std::string> names = model.from(source);
  std::erase_if(names, [&](const std::string& name) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return row.constant == name || row.source.find(name + ": ") != std::string::npos;
    });
  });
  return names;
}

void print(const lab::Device& device, const Model& model, const std::vector<Row>& rows) {
  std::printf("%s, %s\n", device.name.c_str(),
              device.is_virtual ? "predicted (the virtual GPU): each must be the model's constant"
                                : "measured");
  if (!model.note().empty()) std::printf("note: %s\n", model.note().c_str());
  std::printf("\n%-24s %10s %10s  %-12s %6s\n", "constant",
              device.is_virtual ? "predicted" : "measured", "model", "unit", "ratio");
  const auto number = [](double value) {
    return std::isfinite(value) ? lab::format(value < 100 ? "%.2f" : "%.1f", value)
                                : std::string("-");
  };
  for (const Row& row : rows) {
    std::printf("%-24s %10s %10s  %-12s %6s%s\n", row.constant.c_str(),
                number(row.measured).c_str(), number(row.model).c_str(), row.unit.c_str(),
                std::isfinite(row.ratio()) ? lab::format("%.3f", row.ratio()).c_str() : "-",
                device.is_virtual && row.off() ? "  off" : "");
    std::printf("    %s\n", row.what.c_str());
    if (!row.lacking.empty()) std::printf("    %s\n", row.lacking.c_str());
    std::printf("    from: %s\n", row.source.c_str());
  }
  for (const char* source : {"recalled", "guessed"}) {
    const std::vector<std::string> names = unmeasured(model, rows, source);
    if (names.empty()) continue;
    std::string text = lab::format("\n%s, and measured by none of these:", source);
    size_t column = text.size();
    for (const std::string& name : names) {
      const bool fits = column + 1 + name.size() <= 100;
      text += (fits ? " " : "\n  ") + name;
      column = fits ? column + 1 + name.size() : 2 + name.size();
    }
    std::printf("%s\n", text.c_str());
  }
}

std::string json_of(const lab::Device& device, const Model& model, const std::vector<Row>& rows) {
  json::Value all = json::Value::array();
  for (const Row& row : rows)
    all.push_back({{"constant", row.constant},
                   {"what", row.what},
                   {"unit", row.unit},
                   {"measured", row.measured},
                   {"model", row.model},
                   {"ratio", row.ratio()},
                   {"tolerance", kTolerance},
                   {"slack", row.slack},
                   {"source", row.source},
                   {"lacking", row.lacking.empty() ? json::Value() : json::Value(row.lacking)}});
  const json::Value report = {
      {"device", device.name},
      {"compute_capability", lab::format("%d.%d", device.major, device.minor)},
      {"virtual", device.is_virtual},
      {"note", model.note().empty() ? json::Value() : json::Value(model.note())},
      {"constants", all},
      {"recalled", unmeasured(model, rows, "recalled")},
      {"guessed", unmeasured(model, rows, "guessed")}};
  return report.dump(1) + "\n";
}

lab::ExitCode program(int argc, char** argv) {
  std::string only, json_file;
  std::vector<std::string> replaced;
  lab::Flags flags(
      "Measures the constants of the virtual GPU's predicted times.",
      "On the virtual GPU each must give back the constant: exit status 1 when one does not.");
  flags.text("--only", only, "NAME", "constants whose names begin so: l2, bulk, launch_us");
  flags.option(
      "--constant", [&](const std::string& text) { replaced.push_back(text); }, "NAME=VALUE",
      "compares with this value in place of the model's");
  flags.text("--json", json_file, "FILE", "writes all rows there");
  flags.parse(argc, argv);
  if (!json_file.empty()) lab::require_writable("--json", json_file);

  const lab::Device device = lab::open_device();
  if (device.is_virtual && (!lab::vgpu::can_predict() || lab::vgpu::prediction_refused()))
    throw lab::LackError("predicted times are off here (VGPU_TIME=0)");
  Model model(device.name, device.major, device.minor);
  for (const std::string& text : replaced) model.replace(text);
  Bench bench(device, model, only);
  bench.run_all();
  if (bench.rows().empty())
    throw lab::UsageError("--only '" + only + "': no constant that is measured begins so");
  print(device, model, bench.rows());
  if (!json_file.empty()) lab::write_file(json_file, json_of(device, model, bench.rows()));
  const auto off = std::count_if(bench.rows().begin(), bench.rows().end(),
                                 [](const Row& row) { return row.off(); });
  if (device.is_virtual && off > 0) {
    std::printf("\n%d of %zu are not what the model says\n", int(off), bench.rows().size());
    return lab::kWrong;
  }
  return lab::kCorrect;
}

}  // namespace

int main(int argc, char** argv) {
  return lab::guarded_main("calibrate", [&] { return program(argc, argv); });
}
