# The workload `tasks` of the Elixir peer; peer.exs compiles this file before any clock.

defmodule Tasks do
  @moduledoc "`tasks`: processes use a shared table, send messages round a ring, wait and exit."
  import Bitwise

  @each 4
  @ready 0
  @handled 1
  @timed_out 2
  @exited 3
  @early 4
  @misplaced 5
  @wrong 6

  def run(%{count: count, seconds: seconds}) do
    tally = Tally.new(7)
    late = :atomics.new(count, signed: false)
    table = :ets.new(:tasks, [:public, write_concurrency: true, read_concurrency: true])
    :persistent_term.put(__MODULE__, {table, tally, late, count, self(), seconds})

    start = Clock.now()
    tasks = for index <- 0..(count - 1), do: spawn(fn -> work(index) end)
    spawned = Clock.now()
    Tally.complete(@ready)
    ready = Clock.now()
    ready_bytes = Memory.resident()

    going = Clock.now()
    Enum.zip_with(tasks, tl(tasks) ++ [hd(tasks)], fn task, next -> send(task, {:go, next}) end)
    Tally.complete(@handled)
    handled = Clock.now()
    Tally.complete(@exited, seconds * 1000 + 300_000)
    {peak, rss_after} = {Memory.peak(), Memory.resident()}

    sorted = List.to_tuple(Enum.sort(for at <- 1..count, do: :atomics.get(late, at)))
    at = fn probability -> elem(sorted, max(1, ceil(probability * count)) - 1) end
    wrong = :ets.foldl(fn {key, value}, sum -> if value == value_of(key), do: sum, else: sum + 1 end, 0, table)

    {[
       spawn_ns: (spawned - start) / count,
       ready_ns: (ready - start) / count,
       ready_rss_bytes: ready_bytes,
       messages_per_s: count * @each * 1.0e9 / (handled - going),
       late: Quantiles.all(at),
       peak_rss_bytes: peak,
       rss_after_bytes: rss_after
     ],
     [
       {"tasks that were ready", Tally.count(tally, @ready), count},
       {"entries of the map", :ets.info(table, :size), count},
       {"entries with a wrong value", wrong + Tally.count(tally, @wrong), 0},
       {"tasks that handled all their messages", Tally.count(tally, @handled), count},
       {"the sum of the messages", Tally.sum(tally, @handled), Tally.sum_below(count * @each)},
       {"messages received in the wrong order", Tally.count(tally, @misplaced), 0},
       {"tasks that timed out", Tally.count(tally, @timed_out), count},
       {"tasks that timed out early", Tally.count(tally, @early), 0},
       {"tasks that exited", Tally.count(tally, @exited), count},
       {"the sum of their numbers", Tally.sum(tally, @exited), Tally.sum_below(count)}
     ]}
  end

  defp work(index) do
    {table, tally, late, count, driver, seconds} = :persistent_term.get(__MODULE__)
    :ets.insert(table, {index, value_of(index)})
    key = rem(bxor(index, index >>> 15) * 0xD6E8FEB8, count)

    case :ets.lookup(table, key) do
      [{_, value}] -> if value != value_of(key), do: Tally.add(tally, @wrong, 1, :never, driver)
      [] -> :ok
    end

    Tally.add(tally, @ready, index, count, driver)
    next = receive(do: ({:go, next} -> next))
    for number <- 0..(@each - 1), do: send(next, {:item, index, number})
    Tally.add(tally, @handled, take(0, 0, rem(index + count - 1, count), {tally, driver}), count, driver)

    since = Clock.now()

    receive do
      _ -> :ok
    after
      seconds * 1000 ->
        case Clock.now() - since - seconds * 1_000_000_000 do
          later when later >= 0 -> :atomics.put(late, index + 1, later)
          _ -> Tally.add(tally, @early, 1, :never, driver)
        end

        Tally.add(tally, @timed_out, 1, :never, driver)
    end

    Tally.add(tally, @exited, index, count, driver)
  end

  defp take(@each, sum, _, _), do: sum

  defp take(due, sum, before, {tally, driver} = to) do
    receive do
      {:item, from, number} ->
        if {from, number} != {before, due}, do: Tally.add(tally, @misplaced, 1, :never, driver)
        take(due + 1, sum + from * @each + number, before, to)
    end
  end

  # The numbers stay small, so that none is on a heap.
  defp value_of(key), do: band(key * 0x9E3779B9, 0x3FFFFFFF)
end
