defmodule SendCost do
  @moduledoc """
  `send-cost`: the loops of an article on Elixir, with whole numbers of calls, in rounds that the receiver
  confirms. `local_fun`, `remote_loop`, `remote_fun` and `measure_f` have the article's names.
  """

  @steps [1, 500, 3000, 10_000]
  @first_calls 10
  @attempts 3
  @round_bytes 67_108_864
  @message_bytes 64

  def run(%{count: longest, payload: payload, depth: depth}) do
    lengths = Enum.filter(@steps, &(&1 < longest)) ++ [longest]
    {calls, local, made} = measure_f(lengths, longest, fn calls, _ -> call_all(calls) end)

    receiver = Receiver.start(fn -> remote_loop(0, 0) end)
    tally = :counters.new(4, [])
    sender = {receiver, payload, content(payload), tally}

    {messages, sent, delivered} =
      measure_f(lengths, longest, fn calls, is_last ->
        send_rounds(sender, if(is_last, do: depth, else: 0), calls)
      end)

    {[local_ns: local / calls, send_ns: sent / messages, delivered_ns: delivered / messages],
     [
       {"local calls", made, calls},
       {"messages received", :counters.get(tally, 1), :counters.get(tally, 3)},
       {"the sum received", :counters.get(tally, 2), :counters.get(tally, 4)}
     ]}
  end

  # Makes longer and longer loops; each tells how many calls the next one makes.
  defp measure_f(lengths, longest, f) do
    Enum.reduce(lengths, f.(@first_calls, false), fn length, before ->
      step(length * 1_000_000, before, &f.(&1, length == longest), @attempts)
    end)
  end

  # A loop that takes less than half of its length is made again.
  defp step(length, {calls, took, _}, f, attempts) do
    {_, took, _} = made = f.(max(1, div(length * calls, max(1, took))))
    if took * 2 >= length or attempts == 1, do: made, else: step(length, made, f, attempts - 1)
  end

  defp call_all(calls) do
    start = Clock.now()
    made = local_fun(calls, 0)
    {calls, Clock.now() - start, made}
  end

  defp local_fun(0, made), do: made
  defp local_fun(left, made) when left > 0, do: local_fun(left - 1, made + 1)

  # The bytes of each message but the first and the last.
  defp content(payload) when payload < 3, do: <<>>
  defp content(payload), do: :binary.copy(<<0>>, payload - 2)

  # Sends messages in rounds, each to a mailbox in which `depth` messages wait.
  defp send_rounds({_, payload, _, _} = sender, depth, messages) do
    round = max(1, div(@round_bytes, payload + @message_bytes))
    {sent, delivered} = send_rounds(sender, depth, round, messages, 0, 0)
    {messages, sent, delivered}
  end

  defp send_rounds(_sender, _depth, _round, 0, sent, delivered), do: {sent, delivered}

  defp send_rounds({receiver, payload, content, tally} = sender, depth, round, left, sent, delivered) do
    now = min(left, round)
    queue(receiver, payload, content, depth)
    start = Clock.now()
    remote_fun(receiver, payload, content, 0, now)
    sent_at = Clock.now()
    send(receiver, {:confirm, self()})

    {count, sum} =
      receive do
        {:confirmed, count, sum} -> {count, sum}
      after
        300_000 -> {0, 0}
      end

    finished = Clock.now()
    :counters.add(tally, 1, count)
    :counters.add(tally, 2, sum)
    :counters.add(tally, 3, now + depth)
    :counters.add(tally, 4, due_sum(payload, now) + due_sum(payload, depth))
    left = if count == 0, do: 0, else: left - now
    send_rounds(sender, depth, round, left, sent + sent_at - start, delivered + finished - start)
  end

  # Holds the receiver until so many messages wait in its mailbox.
  defp queue(_receiver, _payload, _content, 0), do: :ok

  defp queue(receiver, payload, content, depth) do
    send(receiver, :hold)
    remote_fun(receiver, payload, content, 0, depth)
    send(receiver, :go)
  end

  defp due_sum(0, count), do: Tally.sum_below(count)

  defp due_sum(payload, count) do
    bytes = div(count, 256) * Tally.sum_below(256) + Tally.sum_below(rem(count, 256))
    count * payload + 2 * bytes
  end

  # Each message is a number, or a new binary, into which the content is copied.
  defp remote_fun(_pid, _payload, _content, count, count), do: :ok

  defp remote_fun(pid, 0, content, number, count) do
    send(pid, number)
    remote_fun(pid, 0, content, number + 1, count)
  end

  defp remote_fun(pid, 1, content, number, count) do
    send(pid, <<number>>)
    remote_fun(pid, 1, content, number + 1, count)
  end

  defp remote_fun(pid, payload, content, number, count) do
    send(pid, <<number, content::binary, number>>)
    remote_fun(pid, payload, content, number + 1, count)
  end

  defp remote_loop(count, sum) do
    receive do
      number when is_integer(number) ->
        remote_loop(count + 1, sum + number)

      bytes when is_binary(bytes) ->
        remote_loop(count + 1, sum + byte_size(bytes) + :binary.first(bytes) + :binary.last(bytes))

      :hold ->
        receive(do: (:go -> :ok))
        remote_loop(count, sum)

      {:confirm, from} ->
        send(from, {:confirmed, count, sum})
        remote_loop(0, 0)
    end
  end
end
