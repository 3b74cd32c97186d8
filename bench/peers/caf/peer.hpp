#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "caf/all.hpp"

using steady = std::chrono::steady_clock;

inline double nanoseconds_since(steady::time_point begin) {
  return std::chrono::duration<double, std::nano>(steady::now() - begin).count();
}

/// The arguments of a run, and its metrics and failed checks. Used by the driver only.
class peer {
public:
  peer(int argc, char** argv) {
    if (argc < 2)
      throw std::invalid_argument("no workload is named");
    workload_ = argv[1];
    for (int at = 2; at + 1 < argc; at += 2) {
      std::string name = argv[at];
      std::string value = argv[at + 1];
      if (name == "--set") {
        auto equals = value.find('=');
        settings_[value.substr(0, equals)] = value.substr(equals + 1);
      } else {
        settings_[name.substr(2)] = value;
      }
    }
  }

  const std::string& workload() const {
    return workload_;
  }

  /// The value of a setting that is a number.
  uint64_t setting(const std::string& name) const {
    auto found = settings_.find(name);
    if (found == settings_.end())
      throw std::invalid_argument("no setting " + name);
    return std::stoull(found->second);
  }

  uint64_t count() const {
    return setting("count");
  }

  /// Records a measured value, in the metric's unit.
  void metric(const std::string& name, double value) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.6f", value);
    append(metrics_, '"' + name + "\":" + text);
  }

  /// Records a failure unless the found number is the expected one.
  void check(const std::string& name, uint64_t found, uint64_t expected) {
    if (found != expected)
      append(failures_, '"' + name + ": " + std::to_string(found) + " instead of "
                          + std::to_string(expected) + '"');
  }

  /// Records the percentiles and the distribution of some nanoseconds.
  void percentiles(std::vector<uint64_t>& latencies) {
    std::sort(latencies.begin(), latencies.end());
    auto at = [&](double quantile) {
      auto rank = static_cast<size_t>(std::ceil(quantile * static_cast<double>(latencies.size())));
      return static_cast<double>(latencies.at(std::max<size_t>(1, rank) - 1));
    };
    // The probabilities of the quantiles that a run reports of each distribution.
    for (double probability : {0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0})
      append(quantiles_, std::to_string(at(probability)));
  }

  std::string line() const {
    auto version = std::to_string(CAF_MAJOR_VERSION) + '.' + std::to_string(CAF_MINOR_VERSION) + '.'
                   + std::to_string(CAF_PATCH_VERSION);
    return "{\"version\":\"CAF " + version + "\",\"workers\":" + std::to_string(setting("workers"))
           + ",\"metrics\":{" + metrics_ + "},\"failures\":[" + failures_
           + "],\"quantiles\":{" + (quantiles_.empty() ? "" : "\"latency\":[" + quantiles_ + ']')
           + "}}";
  }

private:
  static void append(std::string& list, const std::string& entry) {
    list += (list.empty() ? "" : ",") + entry;
  }

  std::string workload_;
  std::map<std::string, std::string> settings_;
  std::string metrics_;
  std::string failures_;
  std::string quantiles_;
};

/// 0 + 1 + … + (count − 1).
inline uint64_t sum_below(uint64_t count) {
  return count == 0 ? 0 : count % 2 == 0 ? count / 2 * (count - 1) : (count - 1) / 2 * count;
}

/// The first unit of a part, when `count` units are divided among `parts`.
inline uint64_t share_begin(uint64_t count, uint64_t part, uint64_t parts) {
  return count * part / parts;
}

/// Reads a field of a file of the kernel that is in kibibytes; returns bytes.
inline double kernel_bytes(const char* path, const std::string& field) {
  std::ifstream file{path};
  std::string line;
  while (std::getline(file, line))
    if (line.compare(0, field.size(), field) == 0)
      return std::stod(line.substr(field.size())) * 1024;
  throw std::runtime_error(std::string{path} + " has no field " + field);
}

/// The current resident memory; takes milliseconds if it is large, so never read while a clock runs.
inline double resident_bytes() {
  return kernel_bytes("/proc/self/smaps_rollup", "Rss:");
}

/// The peak of resident memory since the start.
inline double peak_resident_bytes() {
  return kernel_bytes("/proc/self/status", "VmHWM:");
}
