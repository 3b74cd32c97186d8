#pragma once

#include "service.hpp"

/// `fairness`: an actor is called while other actors flood themselves.
class fairness_workload : public workload {
public:
  explicit fairness_workload(peer& p) : workload(p), latencies_(p.count()) {
  }

  void start() override {
    auto self = d->self();
    count_ = p.setting("flooders");
    callee_ = self->spawn<service>(uint64_t{1}, nullptr);
    std::vector<caf::actor> flooders;
    for (uint64_t index = 0; index < count_; ++index)
      flooders.push_back(self->spawn<flooder>(index));

    d->arm(running, count_);
    d->arm(stopped, count_);
    flooding_ = steady::now();
    for (const auto& address : flooders)
      self->send(address, uint64_t{0});
    d->on_go([this] { call_next(); });
  }

private:
  static inline tally running;
  static inline tally stopped;
  static inline std::atomic<bool> stop{false};

  class flooder : public caf::event_based_actor {
  public:
    flooder(caf::actor_config& config, uint64_t index)
      : caf::event_based_actor(config), index_(index) {
    }

    caf::behavior make_behavior() override {
      return {[this](uint64_t value) {
        auto next = order_.note(value);
        if (value == 0)
          running.add(index_);
        if (stop.load(std::memory_order_relaxed))
          stopped.add(next);
        else
          send(this, next);
      }};
    }

  private:
    uint64_t index_;
    order order_{0, 1};
  };

  void call_next() {
    if (value_ == latencies_.size()) {
      stop.store(true);
      d->on_go([this] { report(); });
      return;
    }
    d->after(std::chrono::milliseconds{p.setting("pause")}, [this] {
      auto clock = steady::now();
      d->self()->request(callee_, caf::infinite, value_).then([this, clock](uint64_t reply) {
        latencies_[value_] = static_cast<uint64_t>(nanoseconds_since(clock));
        correct_ += reply == value_ + 1 ? 1 : 0;
        ++value_;
        call_next();
      });
    });
  }

  void report() {
    auto flooded = nanoseconds_since(flooding_);
    auto calls = latencies_.size();
    p.percentiles(latencies_);
    p.metric("message_ns", flooded / static_cast<double>(std::max<uint64_t>(1, stopped.sum())));
    p.check("correct replies", correct_, calls);
    p.check("flooders that ran", running.count(), count_);
    p.check("the sum of their numbers", running.sum(), sum_below(count_));
    p.check("flooders that stopped", stopped.count(), count_);
    order::check(p);
    finish();
  }

  uint64_t count_ = 0;
  caf::actor callee_;
  std::vector<uint64_t> latencies_;
  uint64_t value_ = 0;
  uint64_t correct_ = 0;
  steady::time_point flooding_;
};
