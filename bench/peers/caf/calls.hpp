#pragma once

#include "service.hpp"

/// Random indices below a bound: xorshift64* with a fixed seed, as in the runtimes in Rust.
class pick {
public:
  explicit pick(uint64_t bound) : bound_(bound) {
  }

  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    auto random = state_ * 0x2545'F491'4F6C'DD1DULL;
    __extension__ using wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<wide>(random) * bound_) >> 64);
  }

private:
  uint64_t state_ = 0x9E37'79B9'7F4A'7C15ULL;
  uint64_t bound_;
};

/// An actor that sends requests to services, each after the reply to the one before, and exits after the last.
class caller : public caf::event_based_actor {
public:
  /// A caller with each value of a range, which adds the number of correct replies to a tally.
  /// `next_callee` returns the callee of the next request. Without `latencies` no call is timed.
  caller(caf::actor_config& config, std::function<const caf::actor&()> next_callee, uint64_t begin,
         uint64_t end, std::vector<uint64_t>* latencies, tally* done)
    : caf::event_based_actor(config),
      next_callee_(std::move(next_callee)),
      value_(begin),
      end_(end),
      latencies_(latencies),
      done_(done) {
  }

  caf::behavior make_behavior() override {
    call_or_end();
    // An actor without a behavior exits when it awaits no more replies.
    return {};
  }

private:
  void call_or_end() {
    if (value_ == end_) {
      done_->add(correct_);
      return;
    }
    const auto& callee = next_callee_();
    if (latencies_ != nullptr)
      clock_ = steady::now();
    request(callee, caf::infinite, value_).then([this](uint64_t reply) {
      if (latencies_ != nullptr)
        (*latencies_)[value_] = static_cast<uint64_t>(nanoseconds_since(clock_));
      correct_ += reply == value_ + 1 ? 1 : 0;
      ++value_;
      call_or_end();
    });
  }

  std::function<const caf::actor&()> next_callee_;
  uint64_t value_;
  uint64_t end_;
  std::vector<uint64_t>* latencies_;
  tally* done_;
  uint64_t correct_ = 0;
  steady::time_point clock_;
};

/// The common parts of `call` and `calls`: an actor, or many at once, call a service, and each reply is checked.
class calling_workload : public workload {
public:
  explicit calling_workload(peer& p) : workload(p), latencies_(p.setting("samples")) {
  }

protected:
  static inline tally done;

  /// Starts the callees, and takes a step when each has replied once.
  void start_callees(std::function<void()> step) {
    auto size = p.setting("callees");
    for (uint64_t index = 0; index < size; ++index)
      callees_.push_back(d->self()->spawn<service>(uint64_t{1}, nullptr));
    d->arm(done, 1);
    auto at = std::make_shared<size_t>(0);
    start_caller([this, at]() -> const caf::actor& { return callees_[(*at)++]; }, 0, size, nullptr);
    d->on_go(std::move(step));
  }

  void start_caller(std::function<const caf::actor&()> next_callee, uint64_t begin, uint64_t end,
                    std::vector<uint64_t>* latencies) {
    d->self()->spawn<caller>(std::move(next_callee), begin, end, latencies, &done);
  }

  void report() {
    p.metric("round_trip_ns", elapsed_ / static_cast<double>(p.count()));
    auto is_timed = [](uint64_t nanoseconds) { return nanoseconds > 0; };
    auto timed = std::count_if(latencies_.begin(), latencies_.end(), is_timed);
    p.percentiles(latencies_);
    p.check("correct replies", done.sum(), callees_.size() + p.count() + latencies_.size());
    p.check("calls that were timed separately", static_cast<uint64_t>(timed), latencies_.size());
    finish();
  }

  std::vector<caf::actor> callees_;
  std::vector<uint64_t> latencies_;
  steady::time_point clock_;
  double elapsed_ = 0;
};

class call_workload : public calling_workload {
public:
  explicit call_workload(peer& p) : calling_workload(p), pick_(p.setting("callees")) {
  }

  void start() override {
    auto random = [this]() -> const caf::actor& { return callees_[pick_.next()]; };
    start_callees([this, random] {
      d->arm(done, 2);
      clock_ = steady::now();
      start_caller(random, 0, p.count(), nullptr);
      d->on_go([this, random] {
        elapsed_ = nanoseconds_since(clock_);
        d->arm(done, 3);
        start_caller(random, 0, latencies_.size(), &latencies_);
        d->on_go([this] { report(); });
      });
    });
  }

private:
  pick pick_;
};

class calls_workload : public calling_workload {
public:
  using calling_workload::calling_workload;

  void start() override {
    start_callees([this] {
      auto callers = p.setting("callers");
      d->arm(done, 1 + callers);
      clock_ = steady::now();
      start_callers(callers, p.count(), nullptr);
      d->on_go([this, callers] {
        elapsed_ = nanoseconds_since(clock_);
        d->arm(done, 1 + 2 * callers);
        start_callers(callers, latencies_.size(), &latencies_);
        d->on_go([this, callers] {
          p.check("callers that finished, in two rounds", done.count() - 1, 2 * callers);
          report();
        });
      });
    });
  }

private:
  /// Starts callers, which divide some calls among them.
  void start_callers(uint64_t callers, uint64_t count, std::vector<uint64_t>* latencies) {
    for (uint64_t at = 0; at < callers; ++at) {
      const auto& callee = callees_[at % callees_.size()];
      start_caller([&callee]() -> const caf::actor& { return callee; },
                   share_begin(count, at, callers), share_begin(count, at + 1, callers), latencies);
    }
  }
};
