#pragma once

#include "driver.hpp"

/// `sleep`: actors whose behavior has a time-out, until all have timed out.
class sleep_workload : public workload {
public:
  using workload::workload;

  void start() override {
    auto count = p.count();
    timeout = std::chrono::seconds{p.setting("seconds")};
    kept_.reserve(count);
    d->arm(timed_out, count);
    begun = steady::now();
    for (uint64_t value = 0; value < count; ++value)
      kept_.push_back(d->self()->spawn<sleeper>(value));
    d->on_go([this, count] {
      auto elapsed = nanoseconds_since(begun);
      p.metric("peak_rss_bytes", peak_resident_bytes());
      p.metric("finished_s", elapsed / 1e9);
      p.check("processes that were started", kept_.size(), count);
      p.check("processes that timed out", timed_out.count(), count);
      p.check("the sum of their states", timed_out.sum(), sum_below(count));
      p.check("processes that timed out early", early.count(), 0);
      finish();
    });
  }

private:
  static inline tally timed_out;
  static inline tally early;
  // Start of the clock, and the time-out; static, so that no actor holds either.
  static inline steady::time_point begun;
  static inline std::chrono::seconds timeout;

  class sleeper : public caf::event_based_actor {
  public:
    sleeper(caf::actor_config& config, uint64_t value)
      : caf::event_based_actor(config), value_(value) {
    }

    caf::behavior make_behavior() override {
      return {
        [](go_atom) {},
        caf::after(timeout) >>
          [this] {
            if (steady::now() - begun < timeout)
              early.add(value_);
            timed_out.add(value_);
            quit();
          },
      };
    }

  private:
    uint64_t value_;
  };

  std::vector<caf::actor> kept_;
};
