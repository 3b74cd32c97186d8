# The Elixir peer: modules that the script compiles as it starts, before any clock.
#
# A service is a GenServer and a call is GenServer.call, with the monitor and the deadline that it has;
# the tree of `skynet` consists of tasks; the other shapes are processes that receive, started by spawn or
# spawn_link. These are the means of the documentation of GenServer, Task and Process. The shapes follow
# bench/peers/erlang, step by step; what differs in a figure is the price of the behaviours.
#
# Class: isolated processes, each with a heap of its own, preempted by reductions.
#
# Implements the workloads of bench/src/workloads, in the same order of steps, and prints the line of JSON
# that bench/steps/src/outcome.rs describes. The flags of the emulator are in ERL_FLAGS, as for Erlang:
#
#     ERL_FLAGS="+P 1000000 +S 2:2" elixir bench/peers/elixir/peer.exs pairs --count 1000000 --set pairs=1000
#
# No workload is left out. A million leaves of `skynet` take 20 s of processor time, as a task is linked and
# monitored, and remembers its callers. In `fairness` the call has no deadline; 50 calls among 10,000
# flooders take more than a minute, as in Erlang, and among 1,000 some 10 s.
#
# The tuned row changes what Erlang's changes: it adds +sbwt none +sbwtdcpu none +sbwtdio none to the flags,
# and sets MESSAGE_QUEUE_DATA=off_heap for the processes that receive.

defmodule Clock do
  @moduledoc "Nanoseconds of the monotonic clock."
  def now, do: System.monotonic_time(:nanosecond)
end

defmodule Quantiles do
  @moduledoc "The quantiles that a run reports of each distribution."
  @probabilities [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0]

  def all(at), do: Enum.map(@probabilities, at)
end

defmodule Memory do
  @moduledoc "Resident memory of this program, in bytes, as the kernel reports it."

  def resident, do: kibibytes("/proc/self/smaps_rollup", "Rss:") * 1024

  def peak, do: kibibytes("/proc/self/status", "VmHWM:") * 1024

  defp kibibytes(path, field) do
    path
    |> File.read!()
    |> String.split("\n")
    |> Enum.find_value(fn line ->
      case String.split(line) do
        [^field, number, "kB"] -> String.to_integer(number)
        _ -> nil
      end
    end)
  end
end

defmodule Tally do
  @moduledoc """
  Counts processes and adds up their values; the process that completes a due count tells the driver. The
  number of a tally is its place among those that a workload has.
  """

  @time_limit 300_000

  def new(tallies), do: :atomics.new(2 * tallies, signed: false)

  def add(tally, number, value, due, driver) do
    :atomics.add(tally, 2 * number + 2, value)

    if :atomics.add_get(tally, 2 * number + 1, 1) == due do
      send(driver, {:complete, number})
    end

    :ok
  end

  @doc "Waits until the due count is reached. After the time limit the check of the count fails."
  def complete(number \\ 0, time_limit \\ @time_limit) do
    receive do
      {:complete, ^number} -> :ok
    after
      time_limit -> :ok
    end
  end

  def count(tally, number \\ 0), do: :atomics.get(tally, 2 * number + 1)

  def sum(tally, number \\ 0), do: :atomics.get(tally, 2 * number + 2)

  def sum_below(count), do: div(count * (count - 1), 2)

  @doc "The first unit of a part, when `count` units are divided among `parts`."
  def share_begin(count, part, parts), do: div(count * part, parts)

  def share(count, part, parts), do: share_begin(count, part + 1, parts) - share_begin(count, part, parts)
end

defmodule Receiver do
  @moduledoc "Starts the processes that receive numbers; in the tuned row their queues are off their heaps."

  def start(receive_all) do
    where = if System.get_env("MESSAGE_QUEUE_DATA") == "off_heap", do: :off_heap, else: :on_heap
    Process.spawn(receive_all, [:link, message_queue_data: where])
  end

  @doc "Counts a number that is received in the wrong order."
  def note(due, due, _misplaced), do: :ok
  def note(_value, _due, misplaced), do: :atomics.add(misplaced, 1, 1)

  def in_order(misplaced), do: {"messages received in the wrong order", :atomics.get(misplaced, 1), 0}
end

defmodule Service do
  @moduledoc "A process that replies to each call with the sum of its own number and the call's."
  use GenServer

  @doc "Starts a service; `exited` is the tally to which it adds its number when it exits, if any."
  def start_link(number, exited), do: GenServer.start_link(__MODULE__, {number, exited})

  @impl true
  def init(state), do: {:ok, state}

  @impl true
  def handle_call(value, _from, {number, _} = state) when is_integer(value) do
    {:reply, number + value, state}
  end

  @impl true
  def handle_cast(:stop, state), do: {:stop, :normal, state}

  @impl true
  def terminate(_reason, {_, nil}), do: :ok
  def terminate(_reason, {number, {tally, due, driver}}), do: Tally.add(tally, 0, number, due, driver)
end

defmodule Calls do
  @moduledoc "`call` and `calls`: a process, or many at once, call a service, and each reply is checked."

  def run_sequential(%{count: count, callees: callee_count, samples: samples}) do
    callees = start_callees(callee_count)
    :rand.seed(:exsp, 1)
    warm = call_each(callees)
    start = Clock.now()
    replies = call_all(count, callees, 0)
    elapsed = Clock.now() - start
    {correct, latencies} = sample(samples, callees, 0, [])

    {[{:round_trip_ns, elapsed / count} | percentiles(latencies)],
     [{"correct replies", warm + replies + correct, callee_count + count + samples}]}
  end

  def run_concurrent(%{count: count, callers: callers, callees: callee_count, samples: samples}) do
    callees = start_callees(callee_count)
    warm = call_each(callees)
    start = Clock.now()

    start_callers(callers, callees, fn callee, caller ->
      {call_all(Tally.share(count, caller, callers), {callee}, 0), []}
    end)

    {finished, replies, _} = await_callers(callers, 0, 0, [])
    elapsed = Clock.now() - start

    start_callers(callers, callees, fn callee, caller ->
      sample(Tally.share(samples, caller, callers), {callee}, 0, [])
    end)

    {sampled, correct, latencies} = await_callers(callers, 0, 0, [])

    {[{:round_trip_ns, elapsed / count} | percentiles(latencies)],
     [
       {"callers that finished, in two rounds", finished + sampled, 2 * callers},
       {"correct replies", warm + replies + correct, callee_count + count + samples},
       {"calls that were timed separately", length(latencies), samples}
     ]}
  end

  @doc "Returns 1 if the reply is right, otherwise 0."
  def call(callee, value, time_limit \\ 5000) do
    if GenServer.call(callee, value, time_limit) == value + 1, do: 1, else: 0
  end

  def percentiles(latencies) do
    sorted = latencies |> Enum.sort() |> List.to_tuple()
    at = fn quantile -> elem(sorted, max(1, ceil(quantile * tuple_size(sorted))) - 1) end
    [latency: Quantiles.all(at)]
  end

  defp start_callees(count) do
    for(_ <- 1..count, do: start_callee()) |> List.to_tuple()
  end

  defp start_callee do
    {:ok, callee} = Service.start_link(1, nil)
    callee
  end

  defp call_each(callees) do
    callees |> Tuple.to_list() |> Enum.with_index(&call/2) |> Enum.sum()
  end

  defp call_all(0, _callees, replies), do: replies
  defp call_all(left, callees, replies), do: call_all(left - 1, callees, replies + call(pick(callees), left))

  defp sample(0, _callees, correct, latencies), do: {correct, latencies}

  defp sample(left, callees, correct, latencies) do
    callee = pick(callees)
    start = Clock.now()
    right = call(callee, left)
    sample(left - 1, callees, correct + right, [Clock.now() - start | latencies])
  end

  # With a single callee nothing is drawn.
  defp pick({callee}), do: callee
  defp pick(callees), do: elem(callees, :rand.uniform(tuple_size(callees)) - 1)

  defp start_callers(callers, callees, calls) do
    driver = self()

    for caller <- 0..(callers - 1) do
      callee = elem(callees, rem(caller, tuple_size(callees)))
      spawn_link(fn -> send(driver, {:called, calls.(callee, caller)}) end)
    end
  end

  defp await_callers(0, finished, replies, latencies), do: {finished, replies, latencies}

  defp await_callers(left, finished, replies, latencies) do
    receive do
      {:called, {correct, timed}} ->
        await_callers(left - 1, finished + 1, replies + correct, timed ++ latencies)
    after
      300_000 -> {finished, replies, latencies}
    end
  end
end

defmodule Spawn do
  @moduledoc "`spawn`: processes with a number each; they count themselves on a message, and exit on another."

  @counted 0
  @exited 1

  def run(%{count: count, chunk: chunk}) do
    tally = Tally.new(2)
    driver = self()
    resident_before = Memory.resident()
    start = Clock.now()
    processes = spawn_all(0, count, tally, driver, [])
    spawned = Clock.now()
    send_all(processes, chunk, @counted, 0)
    ready = Clock.now()
    resident = Memory.resident()
    stopping = Clock.now()
    send_all(processes, chunk, @exited, 0)
    exited = Clock.now()
    sum = Tally.sum_below(count)

    {[
       spawn_ns: (spawned - start) / count,
       ready_ns: (ready - start) / count,
       bytes_per_process: max(0, resident - resident_before) / count,
       peak_rss_bytes: Memory.peak(),
       exit_ns: (exited - stopping) / count
     ],
     [
       {"processes that counted themselves", Tally.count(tally, @counted), count},
       {"the sum of their states", Tally.sum(tally, @counted), sum},
       {"processes that exited", Tally.count(tally, @exited), count},
       {"the sum of their last states", Tally.sum(tally, @exited), sum}
     ]}
  end

  defp spawn_all(count, count, _tally, _driver, processes), do: processes

  defp spawn_all(value, count, tally, driver, processes) do
    process = spawn(fn -> wait(value, tally, driver) end)
    spawn_all(value + 1, count, tally, driver, [process | processes])
  end

  # An exit counts as observed when the process evaluates its last expression.
  defp wait(value, tally, driver) do
    receive do
      {@counted, due} ->
        Tally.add(tally, @counted, value, due, driver)
        wait(value, tally, driver)

      {@exited, due} ->
        Tally.add(tally, @exited, value, due, driver)
    end
  end

  # Sends a message to a chunk of processes, and waits until all so far have acted on theirs.
  defp send_all([], _chunk, _message, _before), do: :ok

  defp send_all(processes, chunk, message, before) do
    {now, later} = Enum.split(processes, chunk)
    due = before + length(now)
    Enum.each(now, &send(&1, {message, due}))
    Tally.complete(message)
    send_all(later, chunk, message, due)
  end
end

defmodule Send do
  @moduledoc """
  `send`: messages from one process, or from several, to another, which counts them and confirms their sum.

  A request for the sum from the driver could overtake messages: Erlang orders the signals of one sender only,
  and queues off the heap make use of that.
  """

  @time_limit 300_000

  def run(%{count: count, senders: senders}) do
    driver = self()
    receiver = Receiver.start(fn -> add(count, 0, driver) end)
    start = Clock.now()

    for sender <- 0..(senders - 1) do
      first = Tally.share_begin(count, sender, senders)
      last = Tally.share_begin(count, sender + 1, senders)

      spawn_link(fn ->
        send_all(receiver, first, last)
        send(driver, {:sent, Clock.now()})
      end)
    end

    done = for _ <- 1..senders, do: receive(do: ({:sent, time} -> time))

    sum =
      receive do
        {:sum, sum} -> sum
      after
        @time_limit -> 0
      end

    delivered = Clock.now()

    {[send_ns: (Enum.max(done) - start) / count, delivered_ns: (delivered - start) / count],
     [{"the sum received", sum, Tally.sum_below(count)}]}
  end

  defp send_all(_receiver, last, last), do: :ok

  defp send_all(receiver, value, last) do
    send(receiver, value)
    send_all(receiver, value + 1, last)
  end

  defp add(0, sum, driver), do: send(driver, {:sum, sum})
  defp add(left, sum, driver), do: receive(do: (value -> add(left - 1, sum + value, driver)))
end

# `send-cost` uses the modules above.
Code.require_file("send_cost.exs", __DIR__)

defmodule Churn do
  @moduledoc "`churn`: start a service, call it once, make it exit; in sequence."

  def run(%{count: count, warmup: warmup}) do
    tally = Tally.new(1)
    cycles = warmup + count
    warm = cycle_all(0, warmup, tally)
    resident_before = Memory.resident()
    start = Clock.now()
    replies = cycle_all(warmup, cycles, tally)
    elapsed = Clock.now() - start
    resident = Memory.resident()

    {[cycle_ns: elapsed / count, rss_growth_bytes: max(0, resident - resident_before)],
     [
       {"correct replies", warm + replies, cycles},
       {"processes that exited", Tally.count(tally), cycles},
       {"the sum of their states", Tally.sum(tally), Tally.sum_below(cycles)}
     ]}
  end

  defp cycle_all(first, last, tally), do: cycle_all(first, last, {tally, last, self()}, 0)

  defp cycle_all(last, last, _exited, replies) do
    Tally.complete()
    replies
  end

  defp cycle_all(value, last, exited, replies) do
    {:ok, service} = Service.start_link(value, exited)
    right = if GenServer.call(service, 1) == value + 1, do: 1, else: 0
    GenServer.cast(service, :stop)
    cycle_all(value + 1, last, exited, replies + right)
  end
end

defmodule Sleep do
  @moduledoc "`sleep`: processes wait for a message with a time-out, until all have timed out."

  @timed_out 0
  @early 1

  def run(%{count: count, seconds: seconds}) do
    tally = Tally.new(2)
    start = Clock.now()
    processes = start_all(0, {tally, self(), count, start, seconds}, [])
    Tally.complete(@timed_out, seconds * 1000 + 300_000)
    finished = Clock.now()

    {[peak_rss_bytes: Memory.peak(), finished_s: (finished - start) / 1.0e9],
     [
       {"processes that were started", length(processes), count},
       {"processes that timed out", Tally.count(tally, @timed_out), count},
       {"the sum of their states", Tally.sum(tally, @timed_out), Tally.sum_below(count)},
       {"processes that timed out early", Tally.count(tally, @early), 0}
     ]}
  end

  defp start_all(count, {_, _, count, _, _}, processes), do: processes

  defp start_all(value, timing, processes) do
    start_all(value + 1, timing, [spawn(fn -> wait(value, timing) end) | processes])
  end

  defp wait(value, {tally, driver, count, start, seconds}) do
    receive do
      :wake -> :ok
    after
      seconds * 1000 ->
        if Clock.now() - start < seconds * 1_000_000_000 do
          Tally.add(tally, @early, value, :never, driver)
        end

        Tally.add(tally, @timed_out, value, count, driver)
    end
  end
end

defmodule Relay do
  @moduledoc "`pairs` and `ring`: rings of processes pass a number on, and each adds one to it."

  def run_pairs(%{count: count, pairs: pairs}) do
    {elapsed, checks} = measure(count, pairs, 2)
    {[message_ns: elapsed / count], checks}
  end

  def run_ring(%{count: count, processes: size}) do
    {elapsed, checks} = measure(count, 1, size)
    {[wall_s: elapsed / 1.0e9, hop_ns: elapsed / count], checks}
  end

  defp measure(count, rings, size) do
    misplaced = :atomics.new(1, signed: false)

    # A ring without a share of the messages does not begin.
    begun =
      for ring <- 0..(rings - 1),
          messages = Tally.share(count, ring, rings),
          first = start_ring(size, messages, misplaced),
          messages > 0,
          do: first

    start = Clock.now()
    Enum.each(begun, &send(&1, 0))
    {finished, passed} = await_rings(length(begun), 0, 0)
    elapsed = Clock.now() - start

    {elapsed,
     [
       {"rings that finished", finished, length(begun)},
       {"messages passed on", passed, count},
       Receiver.in_order(misplaced)
     ]}
  end

  defp start_ring(size, messages, misplaced) do
    driver = self()

    links =
      for place <- 0..(size - 1) do
        Receiver.start(fn ->
          receive do
            {:next, next} -> pass(next, place, size, messages, driver, misplaced)
          end
        end)
      end

    [first | rest] = links
    Enum.zip(links, rest ++ [first]) |> Enum.each(fn {link, next} -> send(link, {:next, next}) end)
    first
  end

  defp pass(next, due, size, messages, driver, misplaced) do
    receive do
      value when is_integer(value) ->
        Receiver.note(value, due, misplaced)

        case value + 1 do
          ^messages -> send(driver, {:finished, messages})
          sent -> send(next, sent)
        end

        pass(next, value + size, size, messages, driver, misplaced)
    end
  end

  defp await_rings(begun, begun, passed), do: {begun, passed}

  defp await_rings(begun, finished, passed) do
    receive do
      {:finished, messages} -> await_rings(begun, finished + 1, passed + messages)
    after
      300_000 -> {finished, passed}
    end
  end
end

defmodule Collector do
  @moduledoc """
  `fan` and `burst`: a process sends numbers round robin to receivers, which report once per chunk. The first
  chunk is one number for each receiver.
  """

  def run_fan(%{count: count, receivers: receivers, chunk: chunk, settle: settle}) do
    chunks = chunks(receivers, chunk, count)
    {sender, shared} = start_sender(chunks, fn -> :ok end, fn -> :ok end)
    start = Clock.now()
    send(sender, :go)
    await(:all_received)
    elapsed = Clock.now() - start
    Process.sleep(settle * 1000)
    {[delivered_ns: elapsed / count, rss_after_bytes: Memory.resident()], checks(chunks, shared)}
  end

  def run_burst(%{count: count, receivers: receivers, settle: settle}) do
    driver = self()
    chunks = chunks(receivers, 0, count)
    # A receiver that has received its first number waits for this message, whatever else arrives.
    latch = fn -> receive(do: (:open -> :ok)) end
    {sender, shared} = start_sender(chunks, latch, fn -> send(driver, :sent) end)
    resident_before = Memory.resident()
    send(sender, :go)
    await(:sent)
    resident = Memory.resident()
    send(sender, :open)
    await(:all_received)
    peak = Memory.peak()
    Process.sleep(settle * 1000)

    {[
       bytes_per_message: max(0, resident - resident_before) / count,
       peak_rss_bytes: peak,
       rss_after_bytes: Memory.resident()
     ], checks(chunks, shared)}
  end

  # The receivers, the numbers of each chunk between the first and the last, a multiple of the receivers, and
  # the numbers in all.
  defp chunks(receivers, 0, count), do: {receivers, receivers + count, receivers + count}

  defp chunks(receivers, chunk, count) do
    {receivers, div(chunk + receivers - 1, receivers) * receivers, receivers + count}
  end

  defp chunk_end(0, {receivers, _, total}), do: min(receivers, total)
  defp chunk_end(first, {_, chunk, total}), do: min(first + chunk, total)

  # Starts the sender, which starts the receivers; returns when they have received the first chunk. After its
  # first number a receiver runs the latch, and after each further chunk the sender runs `sent`.
  defp start_sender(chunks, latch, sent) do
    # Reports of the receivers, the sum of their numbers, and the reports due.
    tally = :atomics.new(3, signed: false)
    shared = {tally, :atomics.new(1, signed: false)}
    driver = self()

    sender =
      spawn_link(fn ->
        receivers = start_receivers(chunks, latch, shared)
        next = send_chunk(0, chunks, receivers, tally)
        await(:received)
        send(driver, :ready)
        receive(do: (:go -> :ok))
        send_chunks(next, chunks, receivers, tally, sent)
        send(driver, :all_received)
      end)

    receive(do: (:ready -> :ok))
    {sender, shared}
  end

  defp start_receivers({receivers, _, _} = chunks, latch, {_, misplaced} = shared) do
    sender = self()

    for index <- 0..(receivers - 1) do
      Receiver.start(fn ->
        first = receive(do: (value when is_integer(value) -> value))
        Receiver.note(first, index, misplaced)
        report(first, shared, sender)
        latch.()
        collect(first + receivers, chunk_end(receivers, chunks), 0, chunks, shared, sender)
      end)
    end
  end

  defp collect(due, last, sum, {receivers, _, _} = chunks, {_, misplaced} = shared, sender) do
    receive do
      value when is_integer(value) ->
        Receiver.note(value, due, misplaced)

        case value + receivers do
          next when next >= last ->
            report(sum + value, shared, sender)
            collect(next, chunk_end(last, chunks), 0, chunks, shared, sender)

          next ->
            collect(next, last, sum + value, chunks, shared, sender)
        end
    end
  end

  defp report(sum, {tally, _}, sender) do
    :atomics.add(tally, 2, sum)
    count = :atomics.add_get(tally, 1, 1)
    if count == :atomics.get(tally, 3), do: send(sender, :received)
  end

  # Only with a latch does a message `open` come, and before anything is received.
  defp send_chunks(total, {_, _, total}, _receivers, _tally, _sent), do: :ok

  defp send_chunks(first, chunks, receivers, tally, sent) do
    last = send_chunk(first, chunks, receivers, tally)
    sent.()

    receive do
      :received ->
        :ok

      :open ->
        Enum.each(receivers, &send(&1, :open))
        await(:received)
    after
      300_000 -> :ok
    end

    send_chunks(last, chunks, receivers, tally, sent)
  end

  defp send_chunk(first, {count, _, _} = chunks, receivers, tally) do
    last = chunk_end(first, chunks)
    # Every chunk begins with the first receiver; the last chunk may not reach all of them.
    :atomics.add(tally, 3, min(count, last - first))
    send_round(first, last, receivers, receivers)
    last
  end

  defp send_round(last, last, _left, _receivers), do: :ok
  defp send_round(value, last, [], receivers), do: send_round(value, last, receivers, receivers)

  defp send_round(value, last, [receiver | rest], receivers) do
    send(receiver, value)
    send_round(value + 1, last, rest, receivers)
  end

  defp checks({_, _, total}, {tally, misplaced}) do
    [{"the sum received", :atomics.get(tally, 2), Tally.sum_below(total)}, Receiver.in_order(misplaced)]
  end

  defp await(message) do
    receive do
      ^message -> :ok
    after
      300_000 -> :ok
    end
  end
end

defmodule Fairness do
  @moduledoc "`fairness`: a service is called while other processes flood themselves."

  @running 0
  @stopped 1

  def run(%{count: count, flooders: flooder_count, pause: pause}) do
    tally = Tally.new(2)
    # The first is 1 as soon as the flooders are to stop.
    stop = :atomics.new(1, signed: false)
    misplaced = :atomics.new(1, signed: false)
    {:ok, callee} = Service.start_link(1, nil)
    shared = {tally, stop, misplaced, flooder_count, self()}
    flooders = for index <- 0..(flooder_count - 1), do: Receiver.start(fn -> flood(0, index, shared) end)
    start = Clock.now()
    Enum.each(flooders, &send(&1, 0))
    Tally.complete(@running)
    {replies, latencies} = call_seldom(count, pause, callee, 0, [])
    :atomics.put(stop, 1, 1)
    Tally.complete(@stopped)
    flooded = Clock.now() - start

    {Calls.percentiles(latencies) ++ [message_ns: flooded / max(1, Tally.sum(tally, @stopped))],
     [
       {"correct replies", replies, count},
       {"flooders that ran", Tally.count(tally, @running), flooder_count},
       {"the sum of their numbers", Tally.sum(tally, @running), Tally.sum_below(flooder_count)},
       {"flooders that stopped", Tally.count(tally, @stopped), flooder_count},
       Receiver.in_order(misplaced)
     ]}
  end

  defp flood(due, index, {tally, stop, misplaced, flooders, driver} = shared) do
    receive do
      value when is_integer(value) ->
        Receiver.note(value, due, misplaced)
        if value == 0, do: Tally.add(tally, @running, index, flooders, driver)

        if :atomics.get(stop, 1) == 1 do
          Tally.add(tally, @stopped, value + 1, flooders, driver)
        else
          send(self(), value + 1)
        end

        flood(value + 1, index, shared)
    end
  end

  defp call_seldom(0, _pause, _callee, replies, latencies), do: {replies, latencies}

  defp call_seldom(left, pause, callee, replies, latencies) do
    Process.sleep(pause)
    start = Clock.now()
    # A call among many flooders may take longer than the deadline that a call has by default.
    right = Calls.call(callee, left, :infinity)
    call_seldom(left - 1, pause, callee, replies + right, [Clock.now() - start | latencies])
  end
end

defmodule Skynet do
  @moduledoc "`skynet`: a tree of tasks, ten children to each; a task awaits the sums of its children."

  def run(%{count: count}) do
    start = Clock.now()
    sum = Task.async(fn -> tree(0, count) end) |> Task.await(300_000)
    elapsed = Clock.now() - start
    {[wall_s: elapsed / 1.0e9], [{"the sum", sum, Tally.sum_below(count)}]}
  end

  defp tree(leaf, last) when last - leaf == 1, do: leaf

  defp tree(first, last) do
    count = last - first
    parts = min(count, 10)

    for part <- 0..(parts - 1) do
      {from, to} = {Tally.share_begin(count, part, parts), Tally.share_begin(count, part + 1, parts)}
      Task.async(fn -> tree(first + from, first + to) end)
    end
    |> Task.await_many(:infinity)
    |> Enum.sum()
  end
end

Code.require_file("monitors.exs", __DIR__)
Code.require_file("timers.exs", __DIR__)
Code.require_file("tasks.exs", __DIR__)

defmodule Peer do
  @moduledoc "Runs a workload in a process of its own, and prints its line."

  def main([workload | arguments]) do
    settings = settings(arguments, %{})
    # The driver's heap starts empty.
    {metrics, checks} = Task.async(fn -> run(workload, settings) end) |> Task.await(:infinity)
    IO.puts(line(metrics, checks))
  end

  defp run("spawn", settings), do: Spawn.run(settings)
  defp run("send", settings), do: Send.run(settings)
  defp run("send-cost", settings), do: SendCost.run(settings)
  defp run("call", settings), do: Calls.run_sequential(settings)
  defp run("calls", settings), do: Calls.run_concurrent(settings)
  defp run("churn", settings), do: Churn.run(settings)
  defp run("sleep", settings), do: Sleep.run(settings)
  defp run("pairs", settings), do: Relay.run_pairs(settings)
  defp run("ring", settings), do: Relay.run_ring(settings)
  defp run("fan", settings), do: Collector.run_fan(settings)
  defp run("burst", settings), do: Collector.run_burst(settings)
  defp run("fairness", settings), do: Fairness.run(settings)
  defp run("skynet", settings), do: Skynet.run(settings)
  defp run("monitors", settings), do: Monitors.run(settings)
  defp run("timers", settings), do: Timers.run(settings)
  defp run("tasks", settings), do: Tasks.run(settings)

  defp settings([], settings), do: settings

  defp settings(["--set", setting | rest], settings) do
    [name, value] = String.split(setting, "=", parts: 2)
    settings(rest, put(settings, name, value))
  end

  defp settings(["--" <> name, value | rest], settings), do: settings(rest, put(settings, name, value))

  defp put(settings, name, value) do
    case Integer.parse(value) do
      {number, ""} -> Map.put(settings, String.to_atom(name), number)
      _ -> Map.put(settings, String.to_atom(name), value)
    end
  end

  defp line(metrics, checks) do
    # A list has the quantiles of a distribution.
    {quantiles, metrics} = Enum.split_with(metrics, fn {_, value} -> is_list(value) end)
    fields = for {name, value} <- metrics, do: ~s("#{name}":#{decimal(value)})
    lists = for {name, values} <- quantiles, do: ~s("#{name}":[#{Enum.map_join(values, ",", &decimal/1)}])
    failures = for {what, found, due} <- checks, found != due, do: ~s("#{what}: #{found} instead of #{due}")
    version = "Elixir #{System.version()}, OTP #{System.otp_release()}"

    ~s({"version":"#{version}","workers":#{System.schedulers_online()},) <>
      ~s("metrics":{#{Enum.join(fields, ",")}},"failures":[#{Enum.join(failures, ",")}],) <>
      ~s("quantiles":{#{Enum.join(lists, ",")}}})
  end

  defp decimal(value), do: :erlang.float_to_binary(value / 1, decimals: 6)
end

Peer.main(System.argv())
