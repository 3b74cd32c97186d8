# The workload `monitors` of the Elixir peer; peer.exs compiles this file before any clock.

defmodule Monitors do
  @moduledoc "`monitors`: processes end while one watcher is told of each, or each of several."

  @time_limit 300_000

  def run(%{count: count, watchers: watcher_count}) do
    answered = Tally.new(1)
    driver = self()
    processes = for _ <- 1..count, do: spawn(fn -> live(answered, driver) end)
    ask_all(processes, count)
    # A watcher has the list before memory is read, and makes its monitors on the message `:watch`.
    watchers = for _ <- 1..watcher_count, do: Receiver.start(fn -> watch(processes, count, driver) end)
    ready = await(:ready, watchers)
    resident_before = Memory.resident()

    start = Clock.now()
    Enum.each(watchers, &send(&1, :watch))
    watching = await(:watching, watchers)
    # A monitor is a signal; the message after it is handled when the process has the monitor.
    ask_all(processes, 2 * count)
    established = Clock.now()
    resident = Memory.resident()

    ending = Clock.now()
    Enum.each(processes, &send(&1, :end))
    told = await(:told, watchers)
    down = Clock.now()
    Enum.each(watchers, &send(&1, {:report, processes}))
    reports = await(:report, watchers)

    all = count * watcher_count
    sum = fn at -> reports |> Enum.map(&elem(&1, at)) |> Enum.sum() end

    {[
       monitor_ns: (established - start) / all,
       down_ns: (down - ending) / all,
       bytes_per_monitor: max(0, resident - resident_before) / all
     ],
     [
       {"messages that were answered", Tally.count(answered), 2 * count},
       {"watchers that were ready, made their monitors, and were told of all ends",
        length(ready) + length(watching) + length(told), 3 * watcher_count},
       {"processes that each watcher was told of once", sum.(0), all},
       {"notifications beyond these", sum.(1), 0},
       {"notifications of another reason", sum.(2), 0}
     ]}
  end

  defp live(answered, driver) do
    receive do
      {:ask, due} ->
        Tally.add(answered, 0, 1, due, driver)
        live(answered, driver)

      :end ->
        :ok
    end
  end

  defp ask_all(processes, due) do
    Enum.each(processes, &send(&1, {:ask, due}))
    Tally.complete()
  end

  defp watch(processes, count, driver) do
    send(driver, {:ready, self(), :ok})

    receive do
      :watch -> Enum.each(processes, &Process.monitor/1)
    end

    send(driver, {:watching, self(), :ok})
    {found, abnormal} = await_downs(count, [], 0)
    send(driver, {:told, self(), :ok})

    receive do
      {:report, due} ->
        twice = count - length(Enum.uniq(found))
        once = count - length(due -- found) - twice
        send(driver, {:report, self(), {once, surplus(), abnormal}})
    end
  end

  defp await_downs(0, found, abnormal), do: {found, abnormal}

  defp await_downs(left, found, abnormal) do
    receive do
      {:DOWN, _, :process, process, :normal} -> await_downs(left - 1, [process | found], abnormal)
      {:DOWN, _, :process, process, _} -> await_downs(left - 1, [process | found], abnormal + 1)
    end
  end

  defp surplus do
    receive do
      {:DOWN, _, :process, _, _} -> 1
    after
      0 -> 0
    end
  end

  # Collects what the watchers say of a kind; without those that are silent.
  defp await(kind, watchers) do
    Enum.flat_map(watchers, fn watcher ->
      receive do
        {^kind, ^watcher, said} -> [said]
      after
        @time_limit -> []
      end
    end)
  end
end
