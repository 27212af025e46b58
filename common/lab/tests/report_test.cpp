// The report: exit codes, and files that programs can read.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "attention/program.h"
#include "lab.cuh"
#include "lab/device.h"
#include "lab/files.h"
#include "lab/table.h"
#include "testing/testing.h"

namespace {

struct Run {
  lab::AttentionOptions options;
  lab::Device device;
  lab::AttentionProblem problem;
  lab::ReportHead head() const { return lab::report_head("00_test", options, device, problem); }
};

Run gpu_run() {
  Run run;
  run.options.warmup = 5;
  run.options.iterations = 50;
  run.device.name = "Test GPU";
  run.device.major = 9;
  run.device.sm_count = 10;
  run.device.memory_bytes = 1e9;
  run.device.dram_bytes_per_s = 1e12;
  run.device.fp32_flop_per_s = 2e12;
  run.problem.shape = {1, 2, 3, 32, 0.5f};
  run.problem.source = "by hand";
  return run;
}

lab::Timing timing(double us) {
  lab::Timing timing;
  timing.median_us = us;
  timing.min_us = us / 2;
  timing.mean_us = 2 * us;
  timing.std_us = us / 4;
  timing.scratch_bytes = 4096;
  timing.spread = 0.1;
  timing.samples = 50;
  timing.graph_us = us / 2;
  return timing;
}

lab::Comparison compared(bool pass) {
  const std::vector<double> expected = {1, 2}, got = {1, pass ? 2.0 : std::nan("")};
  return lab::compare(got, expected, {.atol = 0, .rtol = 0, .relative_l2 = 0}, {2});
}

}  // namespace

TEST_CASE("report: the exit code says whether every line is right") {
  const Run run = gpu_run();
  lab::Report right(run.head());
  right.add("kernel", timing(10), {1e6, 1e6}, compared(true));
  CHECK(right.finish() == lab::kCorrect);

  lab::Report wrong(run.head());
  wrong.add("kernel", timing(10), {1e6, 1e6}, compared(true));
  wrong.add("other", timing(10), {1e6, 1e6}, compared(false));
  wrong.add_total("total", timing(10), {1e6, 1e6}, compared(true));
  CHECK(wrong.finish() == lab::kWrong);

  lab::Report condition(run.head());
  condition.add("kernel", timing(10), {1e6, 1e6}, compared(true));
  condition.require(true, "fine");
  CHECK(condition.finish() == lab::kCorrect);
  condition.require(false, "not fine");
  CHECK(condition.finish() == lab::kWrong);

  CHECK(lab::Report(run.head()).finish() == lab::kWrong);  // nothing was shown to be right
}

TEST_CASE("report: JSON of a GPU's run") {
  const lab::testing::TemporaryFolder folder;
  Run run = gpu_run();
  run.options.json = folder.path("r.json");
  run.options.csv = folder.path("r.csv");
  lab::Report report(run.head());
  // 4e6 bytes are 4 us at 1e12 a second, 1e6 operations 0.5 us at 2e12: DRAM decides, 40% of 10 us.
  report.add("copy", timing(10), {4e6, 1e6}, compared(true));
  // 1e6 bytes are 1 us, 1e7 operations 5 us: fp32 decides, 25% of 20 us.
  lab::Timing not_captured = timing(20);
  not_captured.graph_us = std::nan("");
  not_captured.no_graph = "it synchronizes";
  report.add_total("compute", not_captured, {1e6, 1e7}, compared(false));
  report.note("a note");
  CHECK(report.finish() == lab::kWrong);

  const auto json = nlohmann::json::parse(lab::testing::file_content(folder.path("r.json")));
  CHECK(json["chapter"] == "00_test");
  CHECK(json["pass"] == false);
  CHECK(json["device"]["name"] == "Test GPU");
  CHECK(json["device"]["virtual"] == false);
  CHECK(json["problem"]["tokens"] == 3);
  CHECK(json["problem"]["scale"] == 0.5);
  CHECK(json["iterations"] == 50);
  CHECK(json["notes"][0] == "a note");
  REQUIRE(json["kernels"].size() == 2);
  const auto &copy = json["kernels"][0], &compute = json["kernels"][1];
  CHECK(copy["name"] == "copy");
  CHECK(copy["clock"] == "CUDA events");
  CHECK(copy["median_us"] == 10);
  CHECK(copy["min_us"] == 5);
  CHECK(copy["mean_us"] == 20);
  CHECK(copy["std_us"] == 2.5);
  CHECK(copy["scratch_bytes"] == 4096);
  CHECK(copy["graph_us"] == 5);
  CHECK(copy["stages_timed_together"] == 1);
  CHECK_FALSE(copy.contains("no_graph"));
  CHECK(compute["graph_us"].is_null());
  CHECK(compute["no_graph"] == "it synchronizes");
  CHECK(copy["gb_per_s"].get<double>() == doctest::Approx(400));
  CHECK(copy["tflop_per_s"].get<double>() == doctest::Approx(0.1));
  CHECK(copy["bound"]["name"] == "DRAM");
  CHECK(copy["share_of_bound"].get<double>() == doctest::Approx(0.4));
  CHECK(copy["pass"] == true);
  CHECK(compute["bound"]["name"] == "fp32");
  CHECK(compute["share_of_bound"].get<double>() == doctest::Approx(0.25));
  CHECK(compute["pass"] == false);
  CHECK(compute["wrong_elements"] == 1);
  CHECK(compute["max_abs_error"].is_null());  // a NaN, which JSON does not have

  const std::string csv = lab::testing::file_content(folder.path("r.csv"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 3);
  size_t begin = 0;
  std::vector<int64_t> commas;
  for (size_t end; (end = csv.find('\n', begin)) != std::string::npos; begin = end + 1)
    commas.push_back(std::count(csv.begin() + int64_t(begin), csv.begin() + int64_t(end), ','));
  CHECK(commas == std::vector<int64_t>(3, 21));
  CHECK_FALSE(copy.contains("predicted_us"));  // it was measured
}

TEST_CASE("report: tensor cores have a bound of their own, and lines have ratios") {
  Run run = gpu_run();
  run.device.tensor_flop_per_s = 20e12;
  const lab::testing::TemporaryFolder folder;
  run.options.json = folder.path("a.json");
  lab::Report report(run.head());
  // 20 Mflop take 10 us of fp32 units and 1 us of tensor cores; 2 MB take 2 us.
  report.add("before", timing(40), {1e6, 2e7}, compared(true));
  report.add("after", timing(10), {1e6, 2e7, true}, compared(true));
  report.add("copies", timing(10), {2e6, 2e7, true}, compared(true));
  report.add("tf32", timing(10), {1e6, 2e7, true, 0.5}, compared(true));  // 2 us: half the rate
  report.add_ratio("after", "before");
  CHECK_THROWS_AS(report.add_ratio("after", "missing"), std::invalid_argument);
  CHECK(report.finish() == lab::kCorrect);

  const auto json = nlohmann::json::parse(lab::testing::file_content(folder.path("a.json")));
  CHECK(json.at("device").at("tensor_flop_per_s") == 20e12);
  const auto bound = [&](int line) { return json.at("kernels")[line].at("bound"); };
  CHECK(bound(0).at("name") == "fp32");
  CHECK(bound(0).at("us").get<double>() == doctest::Approx(10));
  CHECK(bound(1).at("us").get<double>() == doctest::Approx(1));
  CHECK(bound(2).at("name") == "DRAM");
  CHECK(bound(2).at("us").get<double>() == doctest::Approx(2));
  CHECK(bound(3).at("name") == "tf32");
  CHECK(bound(3).at("us").get<double>() == doctest::Approx(2));
  CHECK(json.at("kernels")[3].at("share_of_bound").get<double>() == doctest::Approx(0.2));
  REQUIRE(json.at("ratios").size() == 1);
  CHECK(json.at("ratios")[0].at("of") == "medians");
  CHECK(json.at("ratios")[0].at("ratio").get<double>() == doctest::Approx(4));
}

TEST_CASE("report: JSON of a virtual GPU's run carries the counters and no GPU's time") {
  const lab::testing::TemporaryFolder folder;
  Run run = gpu_run();
  run.device.is_virtual = true;
  run.options.json = folder.path("r.json");
  lab::Report report(run.head());
  lab::Timing host = timing(1000);
  host.host_time = true;
  host.counters =
      R"({"limit": {"name": "L1", "us": 2.5}, "allocations": {"K": {"load": {"sectors": 64}}}})";
  const auto own = lab::Report::Errors::kOfLaunch;
  report.add_launch("one", host, {1, 1}, compared(true), own);
  report.add_launch("two", host, {1, 1}, compared(true), own);
  report.add_total("all", host, {1, 1}, compared(true));
  CHECK(report.finish() == lab::kCorrect);

  const auto json = nlohmann::json::parse(lab::testing::file_content(folder.path("r.json")));
  const auto& one = json["kernels"][0];
  CHECK(one["clock"] == "wall time on the host");
  CHECK(one["modelled_limit_us"] == 2.5);
  CHECK(one["counters"]["allocations"]["K"]["load"]["sectors"] == 64);
  CHECK_FALSE(one.contains("gb_per_s"));
  CHECK_FALSE(one.contains("share_of_bound"));
  CHECK(json["kernels"][2]["modelled_limit_us"] == 5.0);
  CHECK(one["predicted_us"].is_null());  // counters from before there were predictions
  CHECK(one["predicted_error"].is_null());
  CHECK(one["predicted_why"].get<std::string>() != "");
  CHECK(one["errors_of"] == "this line's output");
}

namespace {

// What finish() prints.
std::string printed(const lab::Report& report) {
  const lab::testing::TemporaryFolder folder;
  std::fflush(stdout);
  const int before = dup(STDOUT_FILENO);
  REQUIRE(std::freopen(folder.path("out").c_str(), "w", stdout));
  report.finish();
  std::fflush(stdout);
  dup2(before, STDOUT_FILENO);
  close(before);
  return lab::testing::file_content(folder.path("out"));
}

// The lines as they stand, or with one space between words and none at the ends.
std::vector<std::string> lines_of(const std::string& text, bool plain = false) {
  std::vector<std::string> lines;
  for (size_t at = 0, next; (next = text.find('\n', at)) != std::string::npos; at = next + 1) {
    lines.push_back(text.substr(at, next - at));
    if (!plain) continue;
    std::istringstream words(lines.back());
    lines.back().clear();
    for (std::string word; words >> word;) lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

// A step's counters: its limit, the sectors of its loads and the fewest they could be.
lab::Timing counted(double limit_us, int sectors, int fewest, int conflicts) {
  lab::Timing timing = ::timing(123e3);
  timing.graph_us = std::nan("");
  timing.host_time = true;
  timing.counters = lab::format(
      R"({"limit": {"name": "L1/shared", "us": %g}, "limits": {"issue": %g},
          "global": {"load": {"requests": 10, "sectors": %d, "ideal_sectors_per_request": %g},
                     "store": {"sectors": 10}},
          "copy_engine": {"load": {"bytes": 320}},
          "shared": {"load": {"wavefronts": 100, "conflicts": %d}}})",
      limit_us, limit_us / 4, sectors, fewest / 10.0, conflicts);
  return timing;
}

// The same with a prediction: `waits` of the warps' time they wait for memory, else they issue.
lab::Timing predicted(lab::Timing timing, double us, double error, double waits) {
  REQUIRE(timing.counters.back() == '}');
  timing.counters.back() = ',';
  timing.counters += lab::format(
      R"("predicted": {"us": %g, "error": %g,
                       "stalls": {"selected": %g, "long_scoreboard": %g}}})",
      us, error, 1 - waits, waits);
  return timing;
}

lab::Timing not_predicted(lab::Timing timing, const std::string& why) {
  timing.counters.back() = ',';
  timing.counters += R"("predicted": {"us": null, "why": ")" + why + "\"}}";
  return timing;
}

}  // namespace

TEST_CASE("report: on the virtual GPU times come first, then what explains them, then errors") {
  Run run = gpu_run();
  run.device.is_virtual = true;
  const auto of_step = lab::Report::Errors::kOfStep;
  const auto report_of = [&] {
    lab::Report report(run.head());
    report.add_launch("first half", predicted(counted(30, 160, 20, 0), 60, 0.2, 0.5), {},
                      compared(true), of_step);
    report.add_launch("other half", predicted(counted(10, 40, 20, 0), 20, 0.25, 0.9), {},
                      compared(true), of_step);
    report.add_total("before", counted(40, 0, 0, 0), {640, 1}, compared(true));
    const lab::Cost cost{640, 1};
    report.add("after", predicted(counted(8, 20, 20, 25), 32, 0.25, 0.3), cost, compared(true));
    report.add_beside("once", not_predicted(counted(1, 20, 20, 0), "no ptxas"), compared(true));
    report.add("skipped", not_predicted(counted(9, 20, 20, 25), "no ptxas"), cost, compared(true));
    report.add("last", predicted(counted(4, 20, 20, 25), 20, 0.25, 0.3), cost, compared(true));
    report.add_ratio("after", "before");
    report.add_ratio("last", "after");
    report.add_ratio("last", "before");
    return report;
  };
  std::string text = printed(report_of());
  CAPTURE(text);
  for (const std::string& line : lines_of(text)) CHECK(line.size() <= 100);
  const std::vector<std::string> lines = lines_of(text, true);
  REQUIRE(lines.size() > 13);
  CHECK(lines[4] == "predicted lower before/ moved/ sectors/ bank max rel.");
  CHECK(lines[5] == "step +-25% bound this set by needed ideal confl error error result");
  // By hand: 200 + 10 + 10 sectors of 32 bytes and twice 320 of copy engines, over 640: 12; of
  // loads 200 sectors over 40. A quarter of each limit is issue, a quarter of the wavefronts of
  // shared memory are conflicts.
  CHECK(lines[6] == "before 80.0 us 40.0 us the sum 12.0x 5.00x - 0.0e+00 0.0e+00 PASS");
  // What is not compared by itself has no errors; the two halves are not "moved" for a known work.
  CHECK(lines[7] == "first half 60.0 us 30.0 us L1/shared - 8.00x - - -");
  CHECK(lines[8] == "other half 20.0 us 10.0 us L1/shared - 2.00x - - -");
  CHECK(lines[9] == "after 32.0 us 8.00 us 2.50x L1/shared 2.00x 1.00x 25% 0.0e+00 0.0e+00 PASS");
  CHECK(lines[10] == "once - 1.00 us L1/shared - 1.00x - - -");
  CHECK(lines[12] == "last 20.0 us 4.00 us 1.60x L1/shared 2.00x 1.00x 25% 0.0e+00 0.0e+00 PASS");
  CHECK(text.find("last: the step before is after\n") != std::string::npos);
  CHECK(text.find(
            "before to last, all steps in between: predicted times 80.0 us to 20.0 us, 4.00x") !=
        std::string::npos);
  CHECK(text.find("off by some 25%\n") != std::string::npos);
  CHECK(text.find("No predicted time of once, skipped: no ptxas\n") != std::string::npos);
  CHECK(text.find("host") == std::string::npos);
  CHECK(text.find("123 ms") == std::string::npos);

  run.options.profile = true;  // then the last column
  text = printed(report_of());
  CHECK(lines_of(text, true)[4] == "predicted lower before/ moved/ sectors/ bank max rel. host");
  CHECK(lines_of(text, true)[9].find("0.0e+00 PASS 123 ms") != std::string::npos);
  for (const std::string& line : lines_of(text)) CHECK(line.size() <= 100);
}

TEST_CASE("report: predicted times in JSON and CSV, those of a step are its launches' together") {
  const lab::testing::TemporaryFolder folder;
  Run run = gpu_run();
  run.device.is_virtual = true;
  run.options.json = folder.path("r.json");
  run.options.csv = folder.path("r.csv");
  const auto of_step = lab::Report::Errors::kOfStep;
  lab::Report report(run.head());
  report.add_launch("a", predicted(counted(1, 1, 1, 0), 60, 0.2, 0.5), {}, compared(true), of_step);
  report.add_launch("b", predicted(counted(1, 1, 1, 0), 20, 0.25, 0.9), {}, compared(true),
                    of_step);
  report.add_total("both", counted(1, 1, 1, 0), {1, 1}, compared(true));
  report.add_launch("c", predicted(counted(1, 1, 1, 0), 60, 0.2, 0.5), {}, compared(true), of_step);
  report.add_launch("d", not_predicted(counted(2, 1, 1, 0), "no ptxas, none at all"), {},
                    compared(true), of_step);
  report.add_total("half known", counted(1, 1, 1, 0), {1, 1}, compared(true));
  report.add("one", predicted(counted(1, 1, 1, 0), 16, 0.25, 0.25), {1, 1}, compared(true));
  report.add_ratio("one", "both");
  report.add_ratio("half known", "both");
  const std::string text = printed(report);

  const auto json = nlohmann::json::parse(lab::testing::file_content(folder.path("r.json")));
  const auto& kernels = json["kernels"];
  CHECK(kernels[0]["predicted_us"] == 60);
  CHECK(kernels[0]["predicted_error"] == 0.2);
  CHECK(kernels[0]["predicted_why"].is_null());
  CHECK(kernels[2]["predicted_us"] == 80);
  CHECK(kernels[2]["predicted_error"] == 0.25);
  // By hand: 60 us of which warps wait half, 20 us of which they wait nine tenths.
  CHECK(kernels[2]["stalls"]["long_scoreboard"].get<double>() == doctest::Approx(48.0 / 80));
  CHECK(kernels[2]["stalls"]["selected"].get<double>() == doctest::Approx(32.0 / 80));
  for (const int line : {4, 5}) {  // a step with a launch of unknown time has no time
    CHECK(kernels[line]["predicted_us"].is_null());
    CHECK(kernels[line]["predicted_error"].is_null());
    CHECK(kernels[line]["predicted_why"] == "no ptxas, none at all");
    CHECK(kernels[line]["stalls"].empty());
  }
  CHECK(json["ratios"][0]["of"] == "predicted times");
  CHECK(json["ratios"][0]["ratio"] == 5);
  CHECK(json["ratios"][0]["before_us"] == 80);
  CHECK(json["ratios"][1]["of"] == "modelled limits");  // in JSON alone
  CHECK(json["ratios"][1]["before_us"] == 2);
  CHECK(lines_of(text, true)[9].find("half known - 3.00 us the sum") == 0);
  CHECK(text.find("No predicted time of d: no ptxas, none at all\n") != std::string::npos);

  std::istringstream csv(lab::testing::file_content(folder.path("r.csv")));
  std::string line;
  std::getline(csv, line);
  CHECK(line.ends_with(",pass,predicted_us,predicted_error,predicted_why,stalls"));
  std::getline(csv, line);
  CHECK(line.ends_with(",1,60,0.2,\"\",\"selected=0.5 long_scoreboard=0.5\""));
  for (int i = 0; i < 4; ++i) std::getline(csv, line);
  CHECK(line.ends_with(",1,,,\"no ptxas, none at all\",\"\""));
}

TEST_CASE("report: a line of several launches alike has the time of all, the counters of one") {
  const lab::testing::TemporaryFolder folder;
  Run run = gpu_run();
  run.device.is_virtual = true;
  run.options.json = folder.path("r.json");
  const auto of_launch = lab::Report::Errors::kOfLaunch;
  lab::Report report(run.head());
  report.add_launch("twelve", predicted(counted(1, 20, 20, 0), 5, 0.25, 0.5), {12 * 1280, 1},
                    compared(true), of_launch, 12);
  report.add_launch("one", predicted(counted(3, 20, 20, 0), 20, 0.2, 0.5), {1280, 1},
                    compared(true), of_launch);
  report.add_total("all", counted(1, 1, 1, 0), {13 * 1280, 1}, compared(true));
  CHECK(report.predicted_us("twelve") == 60);
  CHECK(report.predicted_us("all") == 80);
  const std::string text = printed(report);
  CAPTURE(text);
  // By hand: 60 + 20 us, 12 + 3 us. Each launch moves 20 + 10 sectors of 32 bytes and 320 bytes in
  // bulk: 1280, as the cost has it.
  const std::vector<std::string> lines = lines_of(text, true);
  CHECK(lines[6] == "all 80.0 us 15.0 us the sum 1.00x 1.00x 0.0e+00 0.0e+00 PASS 13 -");
  CHECK(lines[7] == "twelve 60.0 us 12.0 us L1/shared 1.00x 1.00x 0.0e+00 0.0e+00 PASS 12 75%");
  CHECK(lines[8] == "one 20.0 us 3.00 us L1/shared 1.00x 1.00x 0.0e+00 0.0e+00 PASS 1 25%");

  const auto json = nlohmann::json::parse(lab::testing::file_content(folder.path("r.json")));
  CHECK(json["kernels"][0]["launches"] == 12);
  CHECK(json["kernels"][0]["predicted_us"] == 60);
  CHECK(json["kernels"][0]["modelled_limit_us"] == 12);
  CHECK_FALSE(json["kernels"][1].contains("launches"));
  CHECK(json["kernels"][2]["predicted_us"] == 80);

  // On a GPU the share is that of the medians.
  run.device.is_virtual = false;
  lab::Report measured(run.head());
  measured.add_launch("twelve", timing(30), {}, compared(true), of_launch, 12);
  measured.add_launch("one", timing(10), {}, compared(true), of_launch);
  measured.add_total("all", timing(35), {}, compared(true));
  const std::vector<std::string> of_gpu = lines_of(printed(measured), true);
  CHECK(of_gpu[7].ends_with("PASS 12 75%"));
  CHECK(of_gpu[8].ends_with("PASS 1 25%"));
}

TEST_CASE("report: without any predicted time the table has limits and says why, and no ratio") {
  Run run = gpu_run();
  run.device.is_virtual = true;
  lab::Report report(run.head());
  report.add("before", not_predicted(counted(4, 1, 1, 0), "no ptxas"), {1, 1}, compared(true));
  report.add("after", not_predicted(counted(2, 1, 1, 0), "no ptxas"), {1, 1}, compared(true));
  report.add_ratio("after", "before");
  const std::string text = printed(report);
  CAPTURE(text);
  CHECK(text.find("+-") == std::string::npos);
  CHECK(text.find("before/") == std::string::npos);
  CHECK(text.find(" 2.00x  L1") == std::string::npos);
  CHECK(text.find("issue ") != std::string::npos);
  CHECK(text.find("No predicted times: no ptxas\n") != std::string::npos);
  CHECK(report.finish() == lab::kCorrect);
}

TEST_CASE("report: what is not compared is neither right nor wrong") {
  const lab::testing::TemporaryFolder folder;
  Run run = gpu_run();
  run.device.is_virtual = true;
  run.options.json = folder.path("r.json");
  lab::Timing sampled = predicted(counted(2, 1, 1, 0), 10, 0.25, 0.5);
  sampled.counters.back() = ',';
  sampled.counters += R"("sampled": true})";
  lab::Report report(run.head());
  report.add("step", sampled, {640, 1}, lab::Comparison::none());
  const std::string text = printed(report);
  CAPTURE(text);
  // Limits and counters of some blocks say nothing of the launch.
  CHECK(lines_of(text, true)[6] == "step 10.0 us not compared");
  CHECK(text.find("error") == std::string::npos);
  const auto json = nlohmann::json::parse(lab::testing::file_content(folder.path("r.json")));
  CHECK(json["kernels"][0]["pass"].is_null());
  CHECK(json["kernels"][0]["modelled_limit_us"].is_null());
  CHECK(json["kernels"][0]["max_abs_error"].is_null());
  CHECK(json["kernels"][0]["predicted_us"] == 10);
}

TEST_CASE("report: lines of which nothing is known but their names are no table") {
  Run run = gpu_run();
  run.device.is_virtual = true;
  lab::Report report(run.head());
  lab::Timing host;
  host.median_us = 5, host.host_time = true;
  report.add_beside("training step", host, compared(true));
  const std::string table = printed(report);
  CAPTURE(table);
  CHECK(table.find("step\n") == std::string::npos);
  CHECK(table.find("No predicted") == std::string::npos);
  report.add_beside("wrong step", host, compared(false));
  CHECK(printed(report).find("FAIL") != std::string::npos);
}

TEST_CASE("report: what is wrong has no ratio, and a wrong launch says so in its line") {
  Run run = gpu_run();
  run.device.is_virtual = true;
  lab::Report report(run.head());
  const auto counted = [](double us, int, int, int) {
    return predicted(::counted(us, 1, 1, 0), 3 * us, 0.25, 0.5);
  };
  report.add_launch("part", counted(2, 1, 1, 0), {}, compared(false), lab::Report::Errors::kOfStep);
  report.add_total("whole", counted(2, 1, 1, 0), {1, 1}, compared(true));
  report.add("wrong", counted(1, 1, 1, 0), {1, 1}, compared(false));
  report.add("right", counted(1, 1, 1, 0), {1, 1}, compared(true));
  report.add_ratio("wrong", "whole");
  report.add_ratio("right", "wrong");
  report.add_ratio("right", "whole");
  const std::string text = printed(report);
  CAPTURE(text);
  CHECK(text.find("before/") == std::string::npos);
  CHECK(text.find("all steps in between") != std::string::npos);
  CHECK(text.find("to wrong") == std::string::npos);
  const std::vector<std::string> lines = lines_of(text);
  CHECK(lines[7].find("  part") == 0);
  CHECK(lines[7].find("FAIL") != std::string::npos);
  CHECK(report.finish() == lab::kWrong);
}

TEST_CASE("report: on a GPU times come first, and no line is too long") {
  Run run = gpu_run();
  run.device.tensor_flop_per_s = 20e12;
  lab::Report report(run.head());
  lab::Timing wide = timing(300);
  wide.spread = 16.447;
  report.add_launch("part", wide, {}, compared(true), lab::Report::Errors::kOfStep);
  report.add_total("instance norm", timing(400), {1e8, 2e7}, compared(true));
  report.add("a coalesced K", timing(100), {2e7, 2e7, true}, compared(true));
  report.add_ratio("a coalesced K", "instance norm");
  const std::string text = printed(report);
  CAPTURE(text);
  const std::vector<std::string> lines = lines_of(text);
  for (const std::string& line : lines) CHECK(line.size() <= 100);
  const std::vector<std::string> plain = lines_of(text, true);
  CHECK(plain[5] == "step median this min spread graph the bound GB/s TFLOP/s error error result");
  CHECK(plain[6] ==
        "instance norm 400 us 200 us 10.0% 200 us 25.0% DRAM 250 0.05 0.0e+00 0.0e+00 PASS");
  CHECK(plain[7] == "part 300 us 150 us 1645% 150 us - - - - -");
  CHECK(plain[8] ==
        "a coalesced K 100 us 4.00x 50.0 us 10.0% 50.0 us 20.0% DRAM 200 0.20 0.0e+00 "
        "0.0e+00 PASS");
  CHECK(text.find("lower") == std::string::npos);
}

TEST_CASE("text table: columns that hold nothing are left out") {
  lab::TextTable table({"name", "a\nb", "empty", "<left", "n"});
  table.add({"x", "1.5", "-", "word", "-"});
  table.add({"longer", "10", "", "w", "7"});
  CHECK(table.text() ==
        "          a\n"
        "name      b  left  n\n"
        "x       1.5  word  -\n"
        "longer   10  w     7\n");
  CHECK_FALSE(table.used(2));
  CHECK_THROWS_AS(table.add({"too", "few"}), std::invalid_argument);
  CHECK(lab::human_time(0.5) == "500 ns");
  CHECK(lab::human_time(999.6) == "1.00 ms");
  CHECK(lab::times(9.996) == "10.0x");
  CHECK(lab::times(std::nan("")) == "-");
}

TEST_CASE("commit_of: the repository's, else what COMMIT says, else unknown") {
  const lab::testing::TemporaryFolder folder;
  const std::string above = std::filesystem::path(folder.folder()).parent_path();
  setenv("GIT_CEILING_DIRECTORIES", above.c_str(), 1);  // may be another one's repository
  setenv("COMMIT", "abc", 1);
  CHECK(lab::commit_of(folder.folder()).name == "abc");
  CHECK_FALSE(lab::commit_of(folder.folder()).changed.has_value());
  unsetenv("COMMIT");
  CHECK(lab::commit_of(folder.folder()).name == "unknown");
  setenv("COMMIT", "abc", 1);

  const std::string git = "git -C '" + folder.folder() + "' -c user.name=a -c user.email=b ";
  if (lab::command_output("git --version").empty()) return;
  folder.write("file", "1");
  lab::command_output("(" + git + "init -q && " + git + "add file && " + git + "commit -m first)");
  const lab::Commit commit = lab::commit_of(folder.folder());
  CHECK(commit.name.size() == 40);
  CHECK(commit.changed == false);
  folder.write("file", "12");
  CHECK(lab::commit_of(folder.folder()).changed == true);
  CHECK(lab::commit_of(folder.folder()).name == commit.name);
  unsetenv("COMMIT");
  unsetenv("GIT_CEILING_DIRECTORIES");
}

TEST_CASE("commit_of: does not write the repository's index, which somebody else may have locked") {
  if (lab::command_output("git --version").empty()) return;
  const lab::testing::TemporaryFolder folder;
  folder.write("file", "content");
  const std::string git = "git -C '" + folder.folder() + "' -c user.name=x -c user.email=x@x ";
  lab::command_output("(" + git + "init -q && " + git + "add file && " + git + "commit -m first)");
  REQUIRE(lab::commit_of(folder.folder()).changed == false);
  // Newer than the index has it, with the same content: `git status` would write that down.
  const std::string path = folder.path("file"), index = folder.path(".git/index");
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(path) + std::chrono::seconds(10));
  const std::string before = lab::testing::file_content(index);
  CHECK(lab::commit_of(folder.folder()).changed == false);
  CHECK(lab::testing::file_content(index) == before);
}
