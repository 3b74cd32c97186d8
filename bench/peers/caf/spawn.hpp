#pragma once

#include "driver.hpp"

/// `spawn`: live actors with a number each; they count themselves on a message, and exit when their
/// address is dropped.
class spawn_workload : public workload {
public:
  explicit spawn_workload(peer& p) : workload(p), count_(p.count()), chunk_(p.setting("chunk")) {
    for (uint64_t first = 0; first < count_; first += address_block) {
      auto size = std::min(address_block, count_ - first);
      // Addresses without an actor, so that their memory is resident.
      blocks_.emplace_back(size);
    }
  }

  void start() override {
    resident_before_ = resident_bytes();
    spawning_ = steady::now();
    uint64_t value = 0;
    for (auto& block : blocks_)
      for (auto& address : block)
        // As in CAF's benchmark of creation: an actor is first scheduled when it has a message.
        address = d->self()->spawn<process, caf::lazy_init>(value++);
    spawn_ns_ = nanoseconds_since(spawning_);
    count_from(0);
  }

private:
  using count_atom = caf::atom_constant<caf::atom("count")>;

  static inline tally counted;
  static inline tally exited;

  /// Addresses in a block of the driver's memory, which it frees once its actors are stopped.
  static constexpr uint64_t address_block = uint64_t{1} << 20;

  class process : public caf::event_based_actor {
  public:
    process(caf::actor_config& config, uint64_t value)
      : caf::event_based_actor(config), value_(value) {
    }

    caf::behavior make_behavior() override {
      return {[this](count_atom) { counted.add(value_); }};
    }

    void on_exit() override {
      exited.add(value_);
    }

  private:
    uint64_t value_;
  };

  void count_from(uint64_t begin) {
    if (begin < count_) {
      auto& block = blocks_[begin / address_block];
      auto end = chunk_end(begin);
      d->arm(counted, end);
      for (auto at = begin; at < end; ++at)
        d->self()->send(block[at % address_block], count_atom::value);
      d->on_go([this, end] { count_from(end); });
      return;
    }
    ready_ns_ = nanoseconds_since(spawning_);
    resident_ = resident_bytes();
    stopping_ = steady::now();
    stop_from(0);
  }

  void stop_from(uint64_t begin) {
    if (begin < count_) {
      auto& block = blocks_[begin / address_block];
      auto end = chunk_end(begin);
      d->arm(exited, end);
      for (auto at = begin; at < end; ++at)
        block[at % address_block] = nullptr;
      if (end % address_block == 0 || end == count_)
        std::vector<caf::actor>{}.swap(block);
      d->on_go([this, end] { stop_from(end); });
      return;
    }
    auto exit_ns = nanoseconds_since(stopping_);

    auto each = 1.0 / static_cast<double>(count_);
    p.metric("spawn_ns", spawn_ns_ * each);
    p.metric("ready_ns", ready_ns_ * each);
    p.metric("bytes_per_process", std::max(0.0, resident_ - resident_before_) * each);
    p.metric("peak_rss_bytes", peak_resident_bytes());
    p.metric("exit_ns", exit_ns * each);
    p.check("processes that counted themselves", counted.count(), count_);
    p.check("the sum of their states", counted.sum(), sum_below(count_));
    p.check("processes that exited", exited.count(), count_);
    p.check("the sum of their last states", exited.sum(), sum_below(count_));
    finish();
  }

  /// The end of the chunk that begins with an actor; a chunk is part of one block.
  uint64_t chunk_end(uint64_t begin) const {
    auto block_end = (begin / address_block + 1) * address_block;
    return std::min({begin + chunk_, block_end, count_});
  }

  uint64_t count_;
  uint64_t chunk_;
  std::vector<std::vector<caf::actor>> blocks_;
  steady::time_point spawning_;
  steady::time_point stopping_;
  double spawn_ns_ = 0;
  double ready_ns_ = 0;
  double resident_before_ = 0;
  double resident_ = 0;
};
