%% `fan` and `burst`: a process sends numbers round robin to receivers, which report once per chunk.
-module(bench_collector).
-export([run/2]).
-import(bench_measure, [clock/0, peak_resident_bytes/0, resident_bytes/0]).
-import(bench_receiver, [note/4, spawn_receiver/1]).

run("fan", #{count := Count, receivers := Receivers, chunk := Chunk, settle := Settle}) ->
    Chunks = chunks(Receivers, Chunk, Count),
    {Sender, Tally} = start_sender(Chunks, fun open/0, fun() -> ok end),
    Start = clock(),
    Sender ! go,
    receive all_received -> ok after 300_000 -> ok end,
    Elapsed = clock() - Start,
    timer:sleep(Settle * 1000),
    {[{delivered_ns, Elapsed / Count}, {rss_after_bytes, resident_bytes()}],
     received_in_order(Chunks, Tally)};

run("burst", #{count := Count, receivers := Receivers, settle := Settle}) ->
    Driver = self(),
    Chunks = chunks(Receivers, 0, Count),
    %% A receiver that has received its first number waits for this message, whatever else arrives.
    Latch = fun() -> receive open -> ok end end,
    {Sender, Tally} = start_sender(Chunks, Latch, fun() -> Driver ! sent end),
    ResidentBefore = resident_bytes(),
    Sender ! go,
    receive sent -> ok after 300_000 -> ok end,
    Resident = resident_bytes(),
    Sender ! open,
    receive all_received -> ok after 300_000 -> ok end,
    Peak = peak_resident_bytes(),
    timer:sleep(Settle * 1000),
    {[{bytes_per_message, max(0, Resident - ResidentBefore) / Count},
      {peak_rss_bytes, Peak},
      {rss_after_bytes, resident_bytes()}],
     received_in_order(Chunks, Tally)}.

%% The first chunk, one number for each receiver, then Count numbers in chunks that are a multiple of
%% the receivers; in a single chunk if Chunk is zero.
chunks(Receivers, 0, Count) -> {Receivers, Receivers + Count, Receivers + Count};
chunks(Receivers, Chunk, Count) ->
    {Receivers, (Chunk + Receivers - 1) div Receivers * Receivers, Receivers + Count}.

%% The end of the chunk that begins with a number.
chunk_end(0, {Receivers, _, Total}) -> min(Receivers, Total);
chunk_end(Begin, {_, Chunk, Total}) -> min(Begin + Chunk, Total).

%% Starts the sender of `fan` and `burst`, which starts the receivers; returns when they have received
%% the first chunk. The sender sends the other chunks on the message `go`. After its first number
%% a receiver runs Latch, and after each further chunk the sender runs Sent.
start_sender(Chunks, Latch, Sent) ->
    %% Reports of the receivers, the sum of their numbers, the reports due, and numbers in the wrong
    %% order.
    Tally = atomics:new(4, [{signed, false}]),
    Driver = self(),
    Sender = spawn_link(fun() ->
        Receivers = start_collectors(Chunks, Latch, Tally),
        Next = send_chunk(0, Chunks, Receivers, Tally),
        receive received -> ok after 300_000 -> ok end,
        Driver ! ready,
        receive go -> ok end,
        send_chunks(Next, Chunks, Receivers, Tally, Sent),
        Driver ! all_received
    end),
    receive ready -> ok end,
    {Sender, Tally}.

start_collectors({Receivers, _, _} = Chunks, Latch, Tally) ->
    Sender = self(),
    [spawn_receiver(fun() ->
         First = receive Value when is_integer(Value) -> Value end,
         note(First, Index, Tally, 4),
         report(First, Tally, Sender),
         Latch(),
         collect(First + Receivers, chunk_end(Receivers, Chunks), 0, Chunks, Tally, Sender)
     end)
     || Index <- lists:seq(0, Receivers - 1)].

%% A receiver reports once per chunk.
collect(Due, End, Sum, {Receivers, _, _} = Chunks, Tally, Sender) ->
    receive
        Value when is_integer(Value) ->
            note(Value, Due, Tally, 4),
            case Value + Receivers of
                Next when Next >= End ->
                    report(Sum + Value, Tally, Sender),
                    collect(Next, chunk_end(End, Chunks), 0, Chunks, Tally, Sender);
                Next -> collect(Next, End, Sum + Value, Chunks, Tally, Sender)
            end
    end.

report(Sum, Tally, Sender) ->
    atomics:add(Tally, 2, Sum),
    Count = atomics:add_get(Tally, 1, 1),
    case atomics:get(Tally, 3) of
        Count -> Sender ! received;
        _ -> ok
    end.

%% Only with a latch does a message `open` come, and before anything is received.
send_chunks(Total, {_, _, Total}, _, _, _) -> ok;
send_chunks(Begin, Chunks, Receivers, Tally, Sent) ->
    End = send_chunk(Begin, Chunks, Receivers, Tally),
    Sent(),
    receive
        received -> ok;
        open ->
            lists:foreach(fun(Receiver) -> Receiver ! open end, Receivers),
            receive received -> ok after 300_000 -> ok end
    after 300_000 -> ok
    end,
    send_chunks(End, Chunks, Receivers, Tally, Sent).

send_chunk(Begin, {Count, _, _} = Chunks, Receivers, Tally) ->
    End = chunk_end(Begin, Chunks),
    %% Every chunk begins with the first receiver; the last chunk may not reach all of them.
    atomics:add(Tally, 3, min(Count, End - Begin)),
    send_round(Begin, End, Receivers, Receivers),
    End.

send_round(End, End, _, _) -> ok;
send_round(Value, End, [], Receivers) -> send_round(Value, End, Receivers, Receivers);
send_round(Value, End, [Receiver | Rest], Receivers) ->
    Receiver ! Value,
    send_round(Value + 1, End, Rest, Receivers).

received_in_order({_, _, Total}, Tally) ->
    [{"the sum received", atomics:get(Tally, 2), Total * (Total - 1) div 2},
     {"messages received in the wrong order", atomics:get(Tally, 4), 0}].

%% The latch of `fan`, which is always open.
open() -> ok.
