#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <limits>

#include "peer.hpp"

using go_atom = caf::atom_constant<caf::atom("go")>;

/// Limit of each wait, so that a lost message cannot hang the benchmark.
constexpr std::chrono::seconds wait_limit{300};

/// Counts actors and adds up their values; the actor that completes the armed count sends `go` to the waiting one.
class tally {
public:
  void add(uint64_t value) {
    sum_.fetch_add(value, std::memory_order_relaxed);
    if (count_.fetch_add(1, std::memory_order_acq_rel) + 1 == armed_.load(std::memory_order_relaxed))
      caf::anon_send(waiting_, go_atom::value);
  }

  /// Sets the count at which an actor gets the message. Called before any message is sent that could
  /// complete that count.
  void arm(uint64_t count, const caf::actor& waiting) {
    waiting_ = waiting;
    armed_.store(count, std::memory_order_relaxed);
  }

  uint64_t count() const {
    return count_.load(std::memory_order_acquire);
  }

  uint64_t sum() const {
    return sum_.load(std::memory_order_relaxed);
  }

private:
  std::atomic<uint64_t> count_{0};
  std::atomic<uint64_t> sum_{0};
  std::atomic<uint64_t> armed_{std::numeric_limits<uint64_t>::max()};
  caf::actor waiting_;
};

/// The order in which an actor must receive its numbers: each greater than the one before by a step.
class order {
public:
  order(uint64_t first, uint64_t step) : due_(first), step_(step) {
  }

  /// Notes a number that was received; returns the number that must be received next.
  uint64_t note(uint64_t value) {
    if (value != due_)
      misplaced.fetch_add(1, std::memory_order_relaxed);
    due_ = value + step_;
    return due_;
  }

  static void check(peer& p) {
    p.check("messages received in the wrong order", misplaced.load(), 0);
  }

private:
  static inline std::atomic<uint64_t> misplaced{0};
  uint64_t due_;
  uint64_t step_;
};

/// The driver of a workload: an event-based actor that takes step after step.
class driver {
public:
  explicit driver(caf::event_based_actor* self) : self_(self) {
  }

  caf::event_based_actor* self() const {
    return self_;
  }

  /// Takes a step when a tally reaches a count.
  void when(tally& t, uint64_t count, std::function<void()> step) {
    arm(t, count);
    on_go(std::move(step));
  }

  /// Makes a tally send `go` to the driver.
  void arm(tally& t, uint64_t count) {
    t.arm(count, caf::actor{self_});
  }

  /// Takes a step when `go` arrives. After the time limit the step is taken all the same, and its checks fail.
  void on_go(std::function<void()> step) {
    self_->become([step](go_atom) { step(); }, caf::after(wait_limit) >> [step] { step(); });
  }

  /// Takes a step after some time.
  void after(std::chrono::milliseconds pause, std::function<void()> step) {
    self_->delayed_send(self_, pause, go_atom::value);
    on_go(std::move(step));
  }

private:
  caf::event_based_actor* self_;
};

/// The steps of a workload. The last one calls `finish`.
class workload {
public:
  explicit workload(peer& p) : p(p) {
  }

  virtual ~workload() = default;

  /// Takes the first step; called in the driver.
  virtual void start() = 0;

  peer& p;
  driver* d = nullptr;
  std::promise<void> finished;

protected:
  void finish() {
    finished.set_value();
  }
};

/// Runs a workload in a driver, and waits for its end.
inline void drive(caf::actor_system& system, workload& work) {
  auto finished = work.finished.get_future();
  system.spawn([&work](caf::event_based_actor* self) {
    work.d = new driver{self}; // Lives as long as the program.
    self->set_exception_handler([&work](std::exception_ptr& error) -> caf::error {
      work.finished.set_exception(error);
      return caf::exit_reason::unhandled_exception;
    });
    work.start();
  });
  finished.get();
}
