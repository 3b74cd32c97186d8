#pragma once

#include "driver.hpp"

/// `skynet`: a tree of actors, ten children to each; an actor sends the sum to its parent, and exits.
class skynet_workload : public workload {
public:
  using workload::workload;

  void start() override {
    auto clock = steady::now();
    auto self = d->self();
    self->spawn<node>(caf::actor{self}, uint64_t{0}, p.count());
    auto report = [this, clock](uint64_t sum) {
      p.metric("wall_s", nanoseconds_since(clock) / 1e9);
      p.check("the sum", sum, sum_below(p.count()));
      finish();
    };
    self->become(report, caf::after(wait_limit) >> [report] { report(~uint64_t{0}); });
  }

private:
  class node : public caf::event_based_actor {
  public:
    node(caf::actor_config& config, caf::actor parent, uint64_t begin, uint64_t end)
      : caf::event_based_actor(config), parent_(std::move(parent)), begin_(begin), end_(end) {
    }

    caf::behavior make_behavior() override {
      auto count = end_ - begin_;
      if (count == 1) {
        send(parent_, begin_);
        return {};
      }
      auto parts = std::min<uint64_t>(count, 10);
      due_ = parts;
      for (uint64_t part = 0; part < parts; ++part)
        spawn<node>(caf::actor{this}, begin_ + share_begin(count, part, parts),
                    begin_ + share_begin(count, part + 1, parts));
      return {[this](uint64_t part) {
        sum_ += part;
        if (--due_ == 0) {
          send(parent_, sum_);
          quit();
        }
      }};
    }

  private:
    caf::actor parent_;
    uint64_t begin_;
    uint64_t end_;
    uint64_t due_ = 0;
    uint64_t sum_ = 0;
  };
};
