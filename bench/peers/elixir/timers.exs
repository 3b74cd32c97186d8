# The workload `timers` of the Elixir peer; peer.exs compiles this file before any clock.

defmodule Timers do
  @moduledoc """
  `timers`: a process starts timers to itself, and cancels all but every hundredth.

  It starts or cancels a hundred timers on a message, and the last of them is not cancelled. A timer is
  cancelled without waiting for the scheduler that has it, and without an answer, as Erlang's documentation
  advises for speed.
  """

  @slice 100
  @shortest 100
  @grace 20
  @time_limit 300_000

  def run(%{count: count, live: live, seconds: seconds, longest: longest}) do
    fires = div(count, @slice)
    due = :atomics.new(max(1, fires), signed: true)
    late = :atomics.new(max(1, fires), signed: true)
    for at <- 1..fires//1, do: :atomics.put(late, at, -1)
    # Timers that fired, with their sum; that fired again; early; and though cancelled.
    tally = Tally.new(4)
    live = min(live, count)

    plan = %{count: count, live: live, timeout: seconds * 1000, longest: longest, due: due, late: late, tally: tally}

    process =
      Task.async(fn ->
        before = Memory.resident()
        {start_ns, cancel_ns, resident} = rounds(0, plan, {0, 0, nil})
        await(Clock.now() + (longest + @grace) * 1_000_000, count, plan)
        await(Clock.now() + @time_limit * 1_000_000, fires, plan)
        {start_ns, cancel_ns, max(0, resident - before)}
      end)

    {start_ns, cancel_ns, grown} = Task.await(process, :infinity)
    latenesses = for at <- 1..fires//1, after_ns = :atomics.get(late, at), after_ns >= 0, do: after_ns
    sorted = if latenesses == [], do: {0}, else: latenesses |> Enum.sort() |> List.to_tuple()
    at = fn quantile -> elem(sorted, max(1, ceil(quantile * tuple_size(sorted))) - 1) end

    {[
       start_ns: start_ns / count,
       cancel_ns: cancel_ns / max(1, count - fires),
       late: Quantiles.all(at),
       bytes_per_timer: grown / live
     ],
     [
       {"timers that fired", Tally.count(tally, 0), fires},
       {"the sum of their numbers", Tally.sum(tally, 0), Tally.sum_below(fires) * @slice + fires * (@slice - 1)},
       {"timers that fired again", Tally.count(tally, 1), 0},
       {"timers that fired early", Tally.count(tally, 2), 0},
       {"timers that fired though cancelled", Tally.count(tally, 3), 0}
     ]}
  end

  defp rounds(count, %{count: count}, found), do: found

  defp rounds(first, plan, {start_ns, cancel_ns, resident}) do
    last = min(first + plan.live, plan.count)
    starting = Clock.now()
    armed = start(first, last, plan, [])
    started = Clock.now() - starting
    resident = resident || Memory.resident()
    cancelling = Clock.now()
    armed |> Enum.reverse() |> cancel(0, plan)
    rounds(last, plan, {start_ns + started, cancel_ns + Clock.now() - cancelling, resident})
  end

  defp start(last, last, plan, armed) do
    next(plan)
    armed
  end

  defp start(number, last, plan, armed) when rem(number, @slice) == @slice - 1 do
    fire = div(number, @slice)
    delay = @shortest + rem(fire * 607, max(0, plan.longest - @shortest) + 1)
    :atomics.put(plan.due, fire + 1, Clock.now() + delay * 1_000_000)
    Process.send_after(self(), {:fire, number}, delay)
    if number + 1 < last, do: next(plan)
    start(number + 1, last, plan, armed)
  end

  defp start(number, last, plan, armed) do
    start(number + 1, last, plan, [Process.send_after(self(), {:fire, number}, plan.timeout) | armed])
  end

  defp cancel([], _done, plan), do: next(plan)

  defp cancel(armed, @slice, plan) do
    next(plan)
    cancel(armed, 0, plan)
  end

  defp cancel([timer | rest], done, plan) do
    Process.cancel_timer(timer, async: true, info: false)
    cancel(rest, done + 1, plan)
  end

  # Sends the process a message, and handles all until this one.
  defp next(plan) do
    send(self(), :next)
    handle(plan)
  end

  defp handle(plan) do
    receive do
      {:fire, number} ->
        fire(number, plan)
        handle(plan)

      :next ->
        :ok
    end
  end

  # Handles timers until a time, or until so many have fired.
  defp await(until, fires, plan) do
    left = max(0, div(until - Clock.now() + 999_999, 1_000_000))

    if Tally.count(plan.tally, 0) < fires do
      receive do
        {:fire, number} ->
          fire(number, plan)
          await(until, fires, plan)
      after
        left -> :ok
      end
    end
  end

  defp fire(number, plan) when rem(number, @slice) == @slice - 1 do
    at = div(number, @slice) + 1
    after_ns = Clock.now() - :atomics.get(plan.due, at)

    cond do
      after_ns < 0 -> count(plan, 2, number)
      :atomics.exchange(plan.late, at, after_ns) == -1 -> :ok
      true -> count(plan, 1, number)
    end

    count(plan, 0, number)
  end

  defp fire(number, plan), do: count(plan, 3, number)

  defp count(plan, tally, number), do: Tally.add(plan.tally, tally, number, nil, self())
end
