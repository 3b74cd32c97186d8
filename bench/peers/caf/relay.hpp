#pragma once

#include "driver.hpp"

/// The common parts of `pairs` and `ring`: rings of actors pass a number on, and each adds one to it.
class relay_workload : public workload {
public:
  using workload::workload;

protected:
  /// Passes the numbers through rings; `report` gets the nanoseconds.
  void measure(uint64_t rings, uint64_t size, std::function<void(double)> report) {
    auto count = p.count();
    std::vector<caf::actor> firsts;
    for (uint64_t ring = 0; ring < rings; ++ring)
      firsts.push_back(start_ring(size, messages(count, ring, rings)));
    // A ring without a share of the messages does not begin.
    auto begun = std::min(rings, count);
    d->arm(ended, begun);
    auto clock = steady::now();
    for (uint64_t ring = 0; ring < rings; ++ring)
      if (messages(count, ring, rings) > 0)
        d->self()->send(firsts[ring], uint64_t{0});
    d->on_go([=] {
      report(nanoseconds_since(clock));
      p.check("rings that finished", ended.count(), begun);
      p.check("messages passed on", ended.sum(), count);
      order::check(p);
      finish();
    });
  }

private:
  using next_atom = caf::atom_constant<caf::atom("next")>;

  static inline tally ended;

  class link : public caf::event_based_actor {
  public:
    link(caf::actor_config& config, uint64_t place, uint64_t size, uint64_t messages)
      : caf::event_based_actor(config), order_(place, size), messages_(messages) {
    }

    caf::behavior make_behavior() override {
      return {
        [this](uint64_t value) {
          order_.note(value);
          auto sent = value + 1;
          if (sent == messages_)
            ended.add(sent);
          else
            send(next_, sent);
        },
        [this](next_atom, const caf::actor& next) { next_ = next; },
      };
    }

  private:
    order order_;
    uint64_t messages_;
    caf::actor next_;
  };

  static uint64_t messages(uint64_t count, uint64_t ring, uint64_t rings) {
    return share_begin(count, ring + 1, rings) - share_begin(count, ring, rings);
  }

  caf::actor start_ring(uint64_t size, uint64_t messages) {
    auto self = d->self();
    auto first = self->spawn<link>(uint64_t{0}, size, messages);
    auto last = first;
    for (uint64_t place = 1; place < size; ++place) {
      auto next = self->spawn<link>(place, size, messages);
      self->send(last, next_atom::value, next);
      last = next;
    }
    self->send(last, next_atom::value, first);
    return first;
  }
};

class pairs_workload : public relay_workload {
public:
  using relay_workload::relay_workload;

  void start() override {
    measure(p.setting("pairs"), 2, [this](double elapsed) {
      p.metric("message_ns", elapsed / static_cast<double>(p.count()));
    });
  }
};

class ring_workload : public relay_workload {
public:
  using relay_workload::relay_workload;

  void start() override {
    measure(1, p.setting("processes"), [this](double elapsed) {
      p.metric("wall_s", elapsed / 1e9);
      p.metric("hop_ns", elapsed / static_cast<double>(p.count()));
    });
  }
};
