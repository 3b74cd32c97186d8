#pragma once

#include "driver.hpp"

/// An actor that replies to each request with the sum of its own number and the request's. It exits when its last
/// address is dropped.
class service : public caf::event_based_actor {
public:
  /// A service that adds itself to a tally, if there is one, when it exits.
  service(caf::actor_config& config, uint64_t state, tally* exited)
    : caf::event_based_actor(config), state_(state), exited_(exited) {
  }

  caf::behavior make_behavior() override {
    return {[this](uint64_t value) { return value + state_; }};
  }

  void on_exit() override {
    if (exited_ != nullptr)
      exited_->add(state_);
  }

private:
  uint64_t state_;
  tally* exited_;
};
