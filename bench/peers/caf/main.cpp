// The CAF peer: event-based actors of the C++ Actor Framework.
//
// A process is an event-based actor with dynamically typed messages, the default of CAF's manual and of CAF's own
// benchmarks (actor_creation, mailbox_performance and mixed_case of actor-framework/benchmarks), whose style this
// program follows. A call is a request with a response handler, as in the manual's chapter on requests, without a
// time-out. Actors are C++ objects that share memory. An actor that handles a message is not preempted.
//
// Implements the workloads of bench/src/workloads, in the same order of steps, and prints the line of JSON that
// bench/src/outcome.rs describes. Arguments: WORKLOAD --count N --workers W --set KEY=VALUE…
//
// - `workers` is the number of threads of the scheduler, whose policy is the default, work stealing. CAF's clock has a
//   thread of its own besides.
// - `fairness` needs MAX_THROUGHPUT in the environment, the number of messages after which an actor leaves its thread
//   to others. By default an actor handles messages until its mailbox is empty, and one that sends itself
//   messages keeps its thread for ever.
//
// Written for CAF 0.17, as Debian has it:
//     g++ -std=c++17 -O3 -DNDEBUG -o PEER bench/peers/caf/main.cpp -lcaf_core -pthread

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include "calls.hpp"
#include "churn.hpp"
#include "collector.hpp"
#include "driver.hpp"
#include "fairness.hpp"
#include "peer.hpp"
#include "relay.hpp"
#include "send.hpp"
#include "skynet.hpp"
#include "sleep.hpp"
#include "spawn.hpp"

namespace {

std::unique_ptr<workload> make_workload(peer& p) {
  const auto& name = p.workload();
  if (name == "spawn")
    return std::make_unique<spawn_workload>(p);
  if (name == "send")
    return std::make_unique<send_workload>(p);
  if (name == "call")
    return std::make_unique<call_workload>(p);
  if (name == "calls")
    return std::make_unique<calls_workload>(p);
  if (name == "churn")
    return std::make_unique<churn_workload>(p);
  if (name == "sleep")
    return std::make_unique<sleep_workload>(p);
  if (name == "pairs")
    return std::make_unique<pairs_workload>(p);
  if (name == "ring")
    return std::make_unique<ring_workload>(p);
  if (name == "fan")
    return std::make_unique<fan_workload>(p);
  if (name == "burst")
    return std::make_unique<burst_workload>(p);
  if (name == "fairness")
    return std::make_unique<fairness_workload>(p);
  if (name == "skynet")
    return std::make_unique<skynet_workload>(p);
  throw std::invalid_argument("no workload " + name);
}

void run(int argc, char** argv) {
  peer p{argc, argv};
  auto work = make_workload(p);
  caf::actor_system_config config;
  config.set("scheduler.max-threads", static_cast<size_t>(p.setting("workers")));
  if (const char* most = std::getenv("MAX_THROUGHPUT"))
    config.set("scheduler.max-throughput", static_cast<size_t>(std::stoull(most)));
  else if (p.workload() == "fairness")
    throw std::invalid_argument("fairness needs MAX_THROUGHPUT");
  caf::actor_system system{config};
  drive(system, *work);
  std::printf("%s\n", p.line().c_str());
  std::fflush(stdout);
  // Actors of a ring refer to each other and never end, so the system cannot be destroyed.
  std::quick_exit(EXIT_SUCCESS);
}

} // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
