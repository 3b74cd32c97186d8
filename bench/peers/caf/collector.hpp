#pragma once

#include "driver.hpp"

/// The common parts of `fan` and `burst`: an actor sends numbers round robin to receivers, which report once
/// per chunk. The first chunk is one number for each receiver.
class collector_workload : public workload {
public:
  collector_workload(peer& p, uint64_t chunk)
    : workload(p), receivers_(p.setting("receivers")), total_(receivers_ + p.count()) {
    // A multiple of the receivers, so that each gets as many; a single chunk if it is zero.
    chunk_ = chunk == 0 ? total_ : (chunk + receivers_ - 1) / receivers_ * receivers_;
  }

protected:
  using open_atom = caf::atom_constant<caf::atom("open")>;

  static inline tally received;
  static inline tally sent;

  /// Starts the receivers and sends the first chunk; takes a step when it has been received.
  void start_receivers(bool latched, std::function<void()> step) {
    for (uint64_t index = 0; index < receivers_; ++index)
      mailboxes_.push_back(d->self()->spawn<receiver>(*this, index, latched));
    send_chunk(d->self(), d->self());
    d->on_go(std::move(step));
  }

  /// Sends the next chunk as one actor, and makes its receipt send `go` to another.
  void send_chunk(caf::event_based_actor* self, const caf::actor& waiting) {
    auto end = end_of(next_);
    // Every chunk begins with the first receiver; the last chunk may not reach all of them.
    reports_ += std::min(receivers_, end - next_);
    received.arm(reports_, waiting);
    size_t to = 0;
    for (auto value = next_; value < end; ++value) {
      self->send(mailboxes_[to], value);
      to = to + 1 == mailboxes_.size() ? 0 : to + 1;
    }
    next_ = end;
  }

  /// Whether every chunk has been sent.
  bool is_done() const {
    return next_ == total_;
  }

  /// Measures the memory after the work, and ends the workload.
  void settle() {
    d->after(std::chrono::seconds{p.setting("settle")}, [this] {
      p.metric("rss_after_bytes", resident_bytes());
      p.check("the sum received", received.sum(), sum_below(total_));
      order::check(p);
      finish();
    });
  }

  std::vector<caf::actor> mailboxes_;

private:
  class receiver : public caf::event_based_actor {
  public:
    receiver(caf::actor_config& config, const collector_workload& work, uint64_t index, bool latched)
      : caf::event_based_actor(config),
        work_(work),
        order_(index, work.receivers_),
        latched_(latched),
        end_(work.end_of(0)) {
    }

    caf::behavior make_behavior() override {
      return {[this](uint64_t value) {
        receive(value);
        if (latched_)
          wait();
      }};
    }

  private:
    /// Skips every number until the latch is open: it stays in the mailbox.
    void wait() {
      set_default_handler(caf::skip);
      become([this](open_atom) { become([this](uint64_t value) { receive(value); }); });
    }

    void receive(uint64_t value) {
      auto due = order_.note(value);
      sum_ += value;
      if (due >= end_) {
        received.add(sum_);
        sum_ = 0;
        end_ = work_.end_of(end_);
      }
    }

    const collector_workload& work_;
    order order_;
    bool latched_;
    /// End of the current chunk.
    uint64_t end_;
    uint64_t sum_ = 0;
  };

  uint64_t end_of(uint64_t begin) const {
    return std::min(begin + (begin == 0 ? receivers_ : chunk_), total_);
  }

  uint64_t receivers_;
  /// Numbers in all.
  uint64_t total_;
  /// Numbers in each chunk between the first and the last.
  uint64_t chunk_;
  uint64_t next_ = 0;
  uint64_t reports_ = 0;
};

class fan_workload : public collector_workload {
public:
  explicit fan_workload(peer& p) : collector_workload(p, p.setting("chunk")) {
  }

  void start() override {
    start_receivers(false, [this] {
      d->arm(sent, 1);
      clock_ = steady::now();
      d->self()->spawn([this](caf::event_based_actor* self) {
        send_chunk(self, self);
        self->become([this, self](go_atom) {
          if (!is_done())
            return send_chunk(self, self);
          sent.add(0);
          self->quit();
        });
      });
      d->on_go([this] {
        p.metric("delivered_ns", nanoseconds_since(clock_) / static_cast<double>(p.count()));
        settle();
      });
    });
  }

private:
  steady::time_point clock_;
};

class burst_workload : public collector_workload {
public:
  explicit burst_workload(peer& p) : collector_workload(p, 0) {
  }

  void start() override {
    start_receivers(true, [this] {
      auto resident_before = resident_bytes();
      d->arm(sent, 1);
      d->self()->spawn([this](caf::event_based_actor* self) {
        send_chunk(self, d->self());
        sent.add(0);
      });
      d->on_go([this, resident_before] {
        auto growth = std::max(0.0, resident_bytes() - resident_before);
        for (const auto& mailbox : mailboxes_)
          d->self()->send(mailbox, open_atom::value);
        d->on_go([this, growth] {
          p.metric("bytes_per_message", growth / static_cast<double>(p.count()));
          p.metric("peak_rss_bytes", peak_resident_bytes());
          settle();
        });
      });
    });
  }
};
