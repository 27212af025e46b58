#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <fstream>

#include "predicted.h"
#include "report.h"
#include "source_lines.h"

namespace vgpu {
namespace {

constexpr int kColumns = 100;
constexpr int kCostlyLines = 5;

// 1234567 -> "1,234,567"; from 10^12 on "1.235e+12", so that columns stay columns.
std::string count(std::uint64_t n) {
  if (n >= 1'000'000'000'000u) return format("%.3e", static_cast<double>(n));
  std::string digits = std::to_string(n);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string bytes(double n) {
  if (n < 10000) return format("%.0f B", n);
  for (const char* unit : {"KiB", "MiB", "GiB"}) {
    n /= 1024;
    if (n < 1000) return format("%.1f %s", n, unit);
  }
  return format("%.4g TiB", n / 1024);
}

std::string time(double us) {
  if (us >= 1e6) return format("%.4g s ", us / 1e6);
  if (us >= 1e3) return format("%.2f ms", us / 1e3);
  return us >= 1 ? format("%.2f us", us) : format("%.2f ns", 1e3 * us);
}

std::string quotient(double a, double b, const char* pattern) {
  std::string text = "-";
  if (b > 0) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, pattern, a / b);
    text = buffer;
  }
  return text;
}

std::string dims(const std::uint32_t (&d)[3]) {
  std::string text = "(" + std::to_string(d[0]);
  if (d[1] != 1 || d[2] != 1) text += ", " + std::to_string(d[1]);
  if (d[2] != 1) text += ", " + std::to_string(d[2]);
  return text + ")";
}

// At most `width` columns: the end of a path says most, the beginning of a line of code.
std::string keep_end(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : "..." + text.substr(text.size() - (width - 3));
}
std::string keep_begin(const std::string& text, std::size_t width) {
  if (text.size() <= width) return text;
  std::size_t end = width - 3;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // not inside a character of UTF-8
  return text.substr(0, end) + "...";
}

// A line of a source file, without its indentation; "" when the file is not there any more.
std::string source_text(const std::string& file, int line) {
  std::ifstream in(file);
  std::string text;
  for (int i = 0; i < line; ++i)
    if (!std::getline(in, text)) return "";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first);
}

// Text in lines of at most kColumns, broken at spaces, each after `indent` spaces.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string result, line(indent, ' ');
  bool empty = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = keep_begin(text.substr(at, end - at), kColumns - indent);
    if (!empty && line.size() + 1 + word.size() > kColumns) {
      result += line + "\n";
      line.assign(indent, ' ');
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
    at = end + 1;
  }
  return result + line + "\n";
}

class Text {
 public:
  Text(const LaunchCounters& counters, const DeviceSpec& device)
      : c_(counters), device_(device), limits_(limits(counters, device)) {}

  std::string make() {
    head();
    instructions();
    memory();
    allocations();
    caches();
    out_ += predicted_text(c_.predicted);
    limit_bars();
    costly_lines();
    residency();
    return std::move(out_);
  }

 private:
  void head() {
    std::string shape = "  grid " + dims(c_.grid) + "  block " + dims(c_.block);
    if (std::uint64_t{c_.cluster[0]} * c_.cluster[1] * c_.cluster[2] > 1)
      shape += "  cluster " + dims(c_.cluster);
    out_ += keep_begin(c_.kernel, kColumns - shape.size()) + shape + "\n";
    out_ += wrapped(format("%s warps, counted on the virtual GPU in PTX, before ptxas; limits "
                           "modelled for %s at %.0f MHz",
                           count(c_.warps).c_str(), device_.name.c_str(), device_.sm_clock_mhz),
                    2);
    if (c_.sampled)
      out_ += wrapped(
          "only the blocks that its predicted time needs were executed: results are "
          "incomplete, counters and limits are those of these blocks",
          2);
  }

  void instructions() {
    struct Row {
      std::uint64_t warp = 0, thread = 0;
    };
    std::array<Row, static_cast<std::size_t>(OpClass::count_)> rows;
    Row all;
    for (const InstrReport& instruction : c_.instructions) {
      Row& row = rows[static_cast<std::size_t>(instruction.op_class)];
      row.warp += instruction.count.issued;
      row.thread += instruction.count.lanes;
      all.warp += instruction.count.issued;
      all.thread += instruction.count.lanes;
    }
    out_ += format("\n%-24s %18s %18s %18s\n", "PTX instructions", "of warps", "of threads",
                   "active lanes");
    auto print = [&](const std::string& name, const Row& row) {
      const auto warp = static_cast<double>(row.warp), thread = static_cast<double>(row.thread);
      out_ += format("  %-22s %18s %18s %18s\n", name.c_str(), count(row.warp).c_str(),
                     count(row.thread).c_str(), quotient(thread, warp, "%.1f").c_str());
    };
    constexpr OpClass kOrder[] = {OpClass::fp32,    OpClass::fp16,    OpClass::fp64,
                                  OpClass::special, OpClass::tensor,  OpClass::memory,
                                  OpClass::atomic,  OpClass::shuffle, OpClass::barrier};
    Row others = all;
    for (const OpClass op_class : kOrder) {
      const Row& row = rows[static_cast<std::size_t>(op_class)];
      others.warp -= row.warp;
      others.thread -= row.thread;
      const bool special = op_class == OpClass::special;
      if (row.warp != 0)
        print(special ? "special functions" : std::string(class_name(op_class)), row);
    }
    if (others.warp != 0) print("integer, moves, control", others);
    print("all", all);
    if (const std::uint64_t macs = c_.tensor_multiply_adds_f16 + c_.tensor_multiply_adds_tf32 +
                                   c_.tensor_multiply_adds_int8)
      out_ += "  tensor multiply-adds: " + count(macs) + "\n";
    if (c_.async_copied_bytes != 0)
      out_ +=
          "  copied asynchronously: " + bytes(static_cast<double>(c_.async_copied_bytes)) + "\n";
    if (c_.most_bulk_under_way != 0)
      out_ += "  bulk copies under way: at most " +
              bytes(static_cast<double>(c_.most_bulk_under_way)) + " a block\n";
  }

  void memory() {
    std::array<GlobalCounters, 3> global, local;
    std::array<SharedCounters, 3> shared;
    std::array<RemoteCounters, 3> remote;
    std::array<BulkCounters, 3> bulk;
    bool any_global = false, any_shared = false, any_remote = false;
    for (const InstrReport& instruction : c_.instructions) {
      const auto access = static_cast<std::size_t>(instruction.access);
      global[static_cast<std::size_t>(instruction.global_access())] += instruction.global;
      bulk[static_cast<std::size_t>(instruction.global_access())] += instruction.bulk;
      local[access] += instruction.local;
      shared[access] += instruction.shared;
      remote[access] += instruction.remote;
      any_remote |= instruction.remote.requests != 0;
      any_global |= instruction.global.requests != 0 || instruction.local.requests != 0;
      any_shared |= instruction.shared.requests != 0;
    }
    constexpr std::array<const char*, 3> kAccess = {"loads", "stores", "atomics"};
    if (any_global) {
      out_ += format("\n%-18s %18s %18s %16s %9s %11s\n", "Global memory", "requests", "sectors",
                     "sectors/request", "ideal", "efficiency");
      auto print = [&](const std::string& name, const GlobalCounters& g) {
        if (g.requests == 0) return;
        const auto requests = static_cast<double>(g.requests);
        out_ += format("  %-16s %18s %18s %16s %9s %11s\n", name.c_str(), count(g.requests).c_str(),
                       count(g.sectors).c_str(),
                       quotient(static_cast<double>(g.sectors), requests, "%.2f").c_str(),
                       quotient(static_cast<double>(g.ideal_sectors), requests, "%.2f").c_str(),
                       quotient(100 * static_cast<double>(g.bytes_distinct),
                                32 * static_cast<double>(g.sectors), "%.1f %%")
                           .c_str());
      };
      for (std::size_t i = 0; i < 3; ++i) print(kAccess[i], global[i]);
      for (std::size_t i = 0; i < 3; ++i) print(std::string("local ") + kAccess[i], local[i]);
    }
    if (any_shared) {
      out_ += format("\n%-18s %18s %18s %16s %9s %11s\n", "Shared memory", "requests", "wavefronts",
                     "per request", "ideal", "conflicts");
      for (std::size_t i = 0; i < 3; ++i) {
        const SharedCounters& s = shared[i];
        if (s.requests == 0) continue;
        const auto requests = static_cast<double>(s.requests);
        out_ += format("  %-16s %18s %18s %16s %9s %11s\n", kAccess[i], count(s.requests).c_str(),
                       count(s.wavefronts).c_str(),
                       quotient(static_cast<double>(s.wavefronts), requests, "%.2f").c_str(),
                       quotient(static_cast<double>(s.ideal), requests, "%.2f").c_str(),
                       quotient(100 * static_cast<double>(s.wavefronts - s.ideal),
                                static_cast<double>(s.wavefronts), "%.1f %%")
                           .c_str());
      }
    }
    copy_engine(bulk);
    if (any_remote) distributed(remote);
  }

  void copy_engine(const std::array<BulkCounters, 3>& bulk) {
    if (bulk[0].copies + bulk[1].copies + bulk[2].copies == 0) return;
    out_ += format("\n%-25s %11s %18s %18s\n", "Copy engine", "copies", "bytes", "L2 sectors");
    constexpr std::array<const char*, 3> kAccess = {"bulk loads", "bulk stores", "bulk reductions"};
    for (std::size_t i = 0; i < 3; ++i)
      if (bulk[i].copies != 0)
        out_ += format("  %-23s %11s %18s %18s\n", kAccess[i], count(bulk[i].copies).c_str(),
                       count(bulk[i].bytes).c_str(), count(bulk[i].l2_sectors).c_str());
    out_ += wrapped(
        "bulk copies pass neither the load/store unit nor the L1: they are not counted above, and "
        "have a part in the limits of DRAM and L2 only",
        2);
  }

  void distributed(const std::array<RemoteCounters, 3>& remote) {
    out_ += format("\n%-25s %11s %18s\n", "Distributed shared memory", "requests", "bytes");
    constexpr std::array<const char*, 3> kAccess = {"loads", "stores", "atomics"};
    for (std::size_t i = 0; i < 3; ++i)
      if (remote[i].requests != 0)
        out_ += format("  %-23s %11s %18s\n", kAccess[i], count(remote[i].requests).c_str(),
                       count(remote[i].bytes).c_str());
    out_ += wrapped(
        limits_.of(Pipe::distributed).known()
            ? "other blocks' shared memory, not counted above; its limit below is at the best rate "
              "that was measured, without bulk copies between blocks"
            : "other blocks' shared memory, not counted above; its bandwidth is unknown, and so is "
              "its limit below",
        2);
  }

  void allocations() {
    if (c_.allocations.empty()) return;
    out_ += format("\n%-26s %12s %12s %12s %12s %15s\n", "Allocations", "size", "read", "written",
                   "loads ask", "sectors/load");
    std::vector<const AllocationReport*> order;
    for (const AllocationReport& allocation : c_.allocations) order.push_back(&allocation);
    auto traffic = [](const AllocationReport* a) {
      std::uint64_t sectors = 0;
      for (const GlobalCounters& c : a->by_access) sectors += c.sectors;
      for (const BulkCounters& c : a->bulk) sectors += c.l2_sectors;
      return sectors;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](auto* a, auto* b) { return traffic(a) > traffic(b); });
    constexpr std::size_t kMost = 10;
    for (std::size_t i = 0; i < std::min(kMost, order.size()); ++i) {
      const AllocationReport& a = *order[i];
      const GlobalCounters& loads = a.by_access[static_cast<std::size_t>(Access::load)];
      auto size = [](double n) { return n > 0 ? bytes(n) : std::string("-"); };
      out_ += format(
          "  %-24s %12s %12s %12s %12s %15s\n", keep_begin(a.name, 24).c_str(),
          bytes(static_cast<double>(a.bytes)).c_str(),
          size(32.0 * static_cast<double>(a.sectors_read)).c_str(),
          size(32.0 * static_cast<double>(a.sectors_written)).c_str(),
          size(static_cast<double>(loads.bytes_asked)).c_str(),
          quotient(static_cast<double>(loads.sectors), static_cast<double>(loads.requests), "%.2f")
              .c_str());
    }
    if (order.size() > kMost) out_ += format("  and %zu more\n", order.size() - kMost);
    out_ += "  read, written: distinct sectors of the launch; loads ask: over all threads\n";
  }

  void caches() {
    const CacheReport& cache = c_.cache;
    if (!cache.modelled) return;
    out_ += format("\n%-26s %16s %10s %16s %10s %15s\n", "Cache model", "L1 sectors", "hits",
                   "L2 sectors", "hits", "read from DRAM");
    auto rate = [](std::uint64_t hits, std::uint64_t sectors) {
      return quotient(100 * static_cast<double>(hits), static_cast<double>(sectors), "%.1f %%");
    };
    auto print = [&](const std::string& name, const CacheCounters& c) {
      if (c.l1_sectors == 0 && c.l2_sectors == 0) return;
      out_ += format("  %-24s %16s %10s %16s %10s %15s\n", keep_begin(name, 24).c_str(),
                     count(c.l1_sectors).c_str(), rate(c.l1_hits, c.l1_sectors).c_str(),
                     count(c.l2_sectors).c_str(), rate(c.l2_hits, c.l2_sectors).c_str(),
                     bytes(32 * static_cast<double>(c.dram_read)).c_str());
    };
    constexpr std::array<const char*, 3> kAccess = {"loads", "stores", "atomics"};
    for (std::size_t i = 0; i < 3; ++i) print(kAccess[i], cache.by_access[i]);
    std::vector<const AllocationReport*> order;
    for (const AllocationReport& allocation : c_.allocations) order.push_back(&allocation);
    std::stable_sort(order.begin(), order.end(),
                     [](auto* a, auto* b) { return a->cache.l2_sectors > b->cache.l2_sectors; });
    constexpr std::size_t kMost = 10;
    for (std::size_t i = 0; i < std::min(kMost, order.size()); ++i)
      print("in " + order[i]->name, order[i]->cache);
    out_ += wrapped("DRAM: " + bytes(32 * static_cast<double>(cache.dram_read)) + " read, " +
                        bytes(32 * static_cast<double>(cache.dram_written)) + " written, " +
                        (cache.warm ? "L2 as the launch before left it"
                                    : "from an empty L2 to one that is written back"),
                    2);
    out_ += wrapped(
        "L1 of " + bytes(static_cast<double>(cache.l1_bytes)) + " beside shared memory, L2 of " +
            bytes(static_cast<double>(cache.l2_bytes)) + "; " + count(cache.resident_blocks) +
            " blocks take turns at each memory instruction",
        2);
  }

  void limit_bars() {
    out_ += "\nModelled limits: lower bounds at peak rates, never times (no latency is in them)\n";
    constexpr int kBar = 40;
    std::string idle;
    std::vector<const Limit*> order;
    for (const Limit& limit : limits_.all) {
      if (limit.known() && limit.us == 0)
        idle += (idle.empty() ? "" : ", ") + std::string(pipe_name(limit.pipe));
      else
        order.push_back(&limit);
    }
    std::stable_sort(order.begin(), order.end(), [](const Limit* a, const Limit* b) {
      return (a->known() ? a->us : -1) > (b->known() ? b->us : -1);
    });
    int width = 18;
    for (const Limit* limit : order)
      width = std::max(width, static_cast<int>(pipe_name(limit->pipe).size()));
    for (const Limit* limit : order) {
      const std::string name(pipe_name(limit->pipe));
      if (!limit->known()) {
        out_ += format("  %-*s    %s\n", width, name.c_str(),
                       limit->unknown == "unknown" ? "unknown: the device's figure is not public"
                                                   : limit->unknown.c_str());
        continue;
      }
      const double part = limits_.largest->us > 0 ? limit->us / limits_.largest->us : 0;
      std::string bar(static_cast<std::size_t>(std::lround(kBar * part)), '#');
      if (!bar.empty()) bar.insert(0, "  ");
      out_ += format("  %-*s >= %12s%s%s\n", width, name.c_str(), time(limit->us).c_str(),
                     bar.c_str(), limit == limits_.largest ? "  the largest" : "");
    }
    if (!idle.empty()) out_ += wrapped("nothing to do for: " + idle, 2);
    if (limits_.of(Pipe::issue).us > 0)
      out_ += wrapped("issue counts " + std::string(issue_counts(c_)), 2);
    for (const Limit& limit : limits_.all)
      if (limit.by_ptx_us > 0)
        out_ += wrapped(std::string(pipe_name(limit.pipe)) +
                            " counts the accesses of the machine code, which are fewer and wider; "
                            "those of PTX would take " +
                            time(limit.by_ptx_us),
                        2);
  }

  void costly_lines() {
    if (!limits_.largest) return;
    const Pipe pipe = limits_.largest->pipe;
    const auto lines = source_lines(c_, limits_, device_);
    if (lines.empty() || lines.front().share == 0) return;
    out_ += "\nSource lines that cost most on " + std::string(pipe_name(pipe)) +
            (pipe == Pipe::dram && !c_.cache.modelled ? " (by sectors asked)" : "") + "\n";
    bool no_lines = false;
    for (std::size_t i = 0; i < std::min<std::size_t>(kCostlyLines, lines.size()); ++i) {
      const LineReport& line = lines[i];
      if (line.share <= 0) break;
      no_lines |= line.file.empty();
      const std::string where = line.file.empty() ? keep_begin(line.function, 40) + ", PTX line " +
                                                        std::to_string(line.ptx_line)
                                                  : line.file + ":" + std::to_string(line.line);
      out_ += format("  %5.1f %%  %-58s %s\n", 100 * line.share, keep_end(where, 58).c_str(),
                     why(pipe, line).c_str());
      const std::string text = line.file.empty() ? "" : source_text(line.file, line.line);
      if (!text.empty()) out_ += "           " + keep_begin(text, kColumns - 11) + "\n";
    }
    if (no_lines) out_ += "  compile with -lineinfo to see source lines\n";
  }

  // What about the line makes it cost that much, at most 29 columns.
  std::string why(Pipe pipe, const LineReport& line) const {
    if (pipe == Pipe::dram || pipe == Pipe::l2 || pipe == Pipe::l1) {
      if (pipe == Pipe::l1 && line.shared.wavefronts > line.global.sectors / 4)
        return quotient(static_cast<double>(line.shared.wavefronts),
                        static_cast<double>(line.shared.requests), "%.2f wavefronts/request");
      if (pipe != Pipe::l1 && line.cache.l1_sectors != 0)
        return quotient(100 * static_cast<double>(line.cache.l1_hits),
                        static_cast<double>(line.cache.l1_sectors), "hits: L1 %.1f %%, ") +
               quotient(100 * static_cast<double>(line.cache.l2_hits),
                        static_cast<double>(line.cache.l2_sectors), "L2 %.1f %%");
      if (line.global.requests != 0)
        return quotient(static_cast<double>(line.global.sectors),
                        static_cast<double>(line.global.requests), "%.2f sectors/request");
      if (line.bulk.copies != 0) return count(line.bulk.l2_sectors) + " sectors in bulk";
      return "local memory";
    }
    if (pipe == Pipe::distributed) return count(line.remote.bytes_distinct) + " bytes";
    if (pipe == Pipe::issue && line.machine_instructions != 0)
      return count(line.machine_instructions) + " machine instr.";
    return count(line.count.issued) + " warp instr.";
  }

  void residency() {
    const Occupancy o = occupancy_of(c_, device_);
    const std::uint64_t blocks = std::uint64_t{c_.grid[0]} * c_.grid[1] * c_.grid[2];
    const std::uint64_t threads = std::uint64_t{c_.block[0]} * c_.block[1] * c_.block[2];
    if (o.blocks_per_sm == 0) {
      out_ += "\n" + wrapped("Occupancy: the launch does not fit: " + o.limiter, 0);
      return;
    }
    out_ += format("\nOccupancy, theoretical: %.0f %%, %d of %d warps per SM\n", 100 * o.fraction,
                   o.warps_per_sm, device_.max_warps_per_sm);
    out_ += wrapped(format("%d blocks of %s threads per SM, limited by %s", o.blocks_per_sm,
                           count(threads).c_str(), o.limiter.c_str()),
                    2);
    const std::uint64_t shared = std::uint64_t{c_.static_shared} + c_.dynamic_shared;
    std::string resources = "each thread: ";
    resources += c_.registers > 0 ? format("%d registers", c_.registers)
                                  : std::string("registers unknown (no machine code)");
    if (c_.local_bytes > 0)
      resources += format(", %d bytes of local memory (spills, arrays)", c_.local_bytes);
    resources += "; each block: " + bytes(static_cast<double>(shared)) + " of shared memory";
    out_ += wrapped(resources, 2);
    out_ += wrapped(format("%s blocks: %.2f waves of %d", count(blocks).c_str(),
                           waves(device_, o, blocks), o.blocks_per_sm * device_.sm_count),
                    2);
  }

  const LaunchCounters& c_;
  const DeviceSpec& device_;
  const Limits limits_;
  std::string out_;
};

}  // namespace

std::string format(const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  char buffer[512];
  std::vsnprintf(buffer, sizeof buffer, pattern, arguments);
  va_end(arguments);
  return buffer;
}

std::string report_text(const LaunchCounters& counters, const DeviceSpec& device) {
  return Text(counters, device).make();
}

}  // namespace vgpu
