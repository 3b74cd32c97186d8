#pragma once

#include "driver.hpp"

/// `send`: messages from one actor, or from several, to another, which confirms their sum.
class send_workload : public workload {
public:
  using workload::workload;

  void start() override {
    auto count = p.count();
    auto senders = p.setting("senders");
    receiver_ = d->self()->spawn<receiver>();

    d->arm(done, senders);
    clock_ = steady::now();
    for (uint64_t sender = 0; sender < senders; ++sender) {
      auto begin = share_begin(count, sender, senders);
      auto end = share_begin(count, sender + 1, senders);
      d->self()->spawn([this, begin, end](caf::event_based_actor* self) {
        for (auto value = begin; value < end; ++value)
          self->send(receiver_, value);
        auto elapsed = static_cast<uint64_t>(nanoseconds_since(clock_));
        auto last = last_done_ns_.load();
        while (last < elapsed && !last_done_ns_.compare_exchange_weak(last, elapsed)) {
        }
        done.add(end - begin);
      });
    }
    d->on_go([this, count, senders] {
      d->self()->request(receiver_, wait_limit, sum_atom::value).then([=](uint64_t sum) {
        auto delivered = nanoseconds_since(clock_);
        p.metric("send_ns", static_cast<double>(last_done_ns_.load()) / static_cast<double>(count));
        p.metric("delivered_ns", delivered / static_cast<double>(count));
        p.check("the sum received", sum, sum_below(count));
        p.check("senders that finished", done.count(), senders);
        p.check("messages sent", done.sum(), count);
        finish();
      });
    });
  }

private:
  using sum_atom = caf::atom_constant<caf::atom("sum")>;

  static inline tally done;

  class receiver : public caf::event_based_actor {
  public:
    using caf::event_based_actor::event_based_actor;

    caf::behavior make_behavior() override {
      return {
        [this](uint64_t value) { sum_ += value; },
        [this](sum_atom) { return sum_; },
      };
    }

  private:
    uint64_t sum_ = 0;
  };

  caf::actor receiver_;
  steady::time_point clock_;
  std::atomic<uint64_t> last_done_ns_{0};
};
