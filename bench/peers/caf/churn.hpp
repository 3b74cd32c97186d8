#pragma once

#include "service.hpp"

/// `churn`: an actor starts an actor, calls it once, and makes it exit; in sequence.
class churn_workload : public workload {
public:
  using workload::workload;

  void start() override {
    auto warmup = p.setting("warmup");
    auto cycles = warmup + p.count();
    cycle_all(0, warmup, [this, warmup, cycles] {
      auto resident_before = resident_bytes();
      auto clock = steady::now();
      cycle_all(warmup, cycles, [this, cycles, resident_before, clock] {
        auto elapsed = nanoseconds_since(clock);
        auto resident = resident_bytes();
        p.metric("cycle_ns", elapsed / static_cast<double>(p.count()));
        p.metric("rss_growth_bytes", std::max(0.0, resident - resident_before));
        p.check("correct replies", replies.sum(), cycles);
        p.check("processes that exited", exited.count(), cycles);
        p.check("the sum of their states", exited.sum(), sum_below(cycles));
        finish();
      });
    });
  }

private:
  static inline tally replies;
  static inline tally exited;

  class cycler : public caf::event_based_actor {
  public:
    cycler(caf::actor_config& config, uint64_t begin, uint64_t end)
      : caf::event_based_actor(config), value_(begin), end_(end) {
    }

    caf::behavior make_behavior() override {
      cycle();
      return {};
    }

  private:
    void cycle() {
      process_ = spawn<service>(value_, &exited);
      request(process_, caf::infinite, uint64_t{1}).then([this](uint64_t reply) {
        process_ = nullptr;
        correct_ += reply == value_ + 1 ? 1 : 0;
        ++value_;
        if (value_ < end_)
          cycle();
        else
          replies.add(correct_);
      });
    }

    uint64_t value_;
    uint64_t end_;
    uint64_t correct_ = 0;
    caf::actor process_;
  };

  /// Runs a cycle for each value, then takes a step when all actors so far have exited.
  void cycle_all(uint64_t begin, uint64_t end, std::function<void()> step) {
    d->arm(exited, end);
    d->self()->spawn<cycler>(begin, end);
    d->on_go(std::move(step));
  }
};
