%% `tasks`: tasks use a shared map, send messages round a ring, wait and exit.
-module(bench_tasks).
-export([run/2]).
-import(bench_measure, [clock/0, peak_resident_bytes/0, quantiles/2, resident_bytes/0]).
-import(bench_receiver, [note/4]).
-import(bench_service, [right/2]).

run("tasks", #{count := Count, seconds := Seconds}) ->
    %% Tasks that are ready; that handled all messages, and their sum; that timed out; that exited, and
    %% the sum of their numbers; messages in the wrong order; tasks too early; and wrong entries.
    Tally = atomics:new(9, [{signed, false}]),
    Late = atomics:new(Count, [{signed, false}]),
    Map = ets:new(tasks, [public, {write_concurrency, true}, {read_concurrency, true}]),
    persistent_term:put(tasks, {Map, Tally, Late, Count, self(), Seconds * 1_000_000_000}),
    Start = clock(),
    Tasks = [spawn(fun() -> task(Index) end) || Index <- lists:seq(0, Count - 1)],
    Spawned = clock(),
    receive all_ready -> ok after 300_000 -> ok end,
    Ready = clock(),
    ReadyBytes = resident_bytes(),
    Going = clock(),
    go_round(Tasks, hd(Tasks)),
    receive all_handled -> ok after 300_000 -> ok end,
    Handled = clock(),
    receive all_tasks_exited -> ok after Seconds * 1000 + 300_000 -> ok end,
    Peak = peak_resident_bytes(),
    After = resident_bytes(),
    Quantiles = quantiles(late, [atomics:get(Late, I) || I <- lists:seq(1, Count)]),
    Wrong = ets:foldl(fun({Key, Value}, Sum) -> Sum + 1 - right(Value, value_of(Key)) end, 0, Map),
    {[{spawn_ns, (Spawned - Start) / Count},
      {ready_ns, (Ready - Start) / Count},
      {ready_rss_bytes, ReadyBytes},
      {messages_per_s, Count * 4 * 1.0e9 / (Handled - Going)},
      Quantiles,
      {peak_rss_bytes, Peak},
      {rss_after_bytes, After}],
     [{"tasks that were ready", atomics:get(Tally, 1), Count},
      {"entries of the map", ets:info(Map, size), Count},
      {"entries with a wrong value", Wrong + atomics:get(Tally, 9), 0},
      {"tasks that handled all their messages", atomics:get(Tally, 2), Count},
      {"the sum of the messages", atomics:get(Tally, 3), 4 * Count * (4 * Count - 1) div 2},
      {"messages received in the wrong order", atomics:get(Tally, 7), 0},
      {"tasks that timed out", atomics:get(Tally, 4), Count},
      {"tasks that timed out early", atomics:get(Tally, 8), 0},
      {"tasks that exited", atomics:get(Tally, 5), Count},
      {"the sum of their numbers", atomics:get(Tally, 6), Count * (Count - 1) div 2}]}.

task(Index) ->
    {Map, Tally, Late, Count, Driver, Timeout} = persistent_term:get(tasks),
    ets:insert(Map, {Index, value_of(Index)}),
    Key = key_for(Index, Count),
    case ets:lookup(Map, Key) of
        [{_, Value}] -> atomics:add(Tally, 9, 1 - right(Value, value_of(Key)));
        [] -> ok
    end,
    count_task(1, Tally, Count, Driver, all_ready),
    Next = receive {go, Address} -> Address end,
    lists:foreach(fun(Number) -> Next ! {item, Index, Number} end, [0, 1, 2, 3]),
    Sum = take_items(0, 0, (Index + Count - 1) rem Count, Tally),
    atomics:add(Tally, 3, Sum),
    count_task(2, Tally, Count, Driver, all_handled),
    Since = clock(),
    receive _ -> ok
    after Timeout div 1_000_000 ->
        case clock() - Since - Timeout of
            After when After >= 0 -> atomics:put(Late, Index + 1, After);
            _ -> atomics:add(Tally, 8, 1)
        end,
        atomics:add(Tally, 4, 1)
    end,
    atomics:add(Tally, 6, Index),
    count_task(5, Tally, Count, Driver, all_tasks_exited).

take_items(4, Sum, _, _) -> Sum;
take_items(Due, Sum, Before, Tally) ->
    receive
        {item, From, Number} ->
            note({From, Number}, {Before, Due}, Tally, 7),
            take_items(Due + 1, Sum + 4 * From + Number, Before, Tally)
    end.

count_task(At, Tally, Count, Driver, Complete) ->
    case atomics:add_get(Tally, At, 1) of
        Count -> Driver ! Complete;
        _ -> ok
    end.

%% Sends each task the address of the next; the last task's next is the first.
go_round([Last], First) -> Last ! {go, First};
go_round([Task, Next | Rest], First) ->
    Task ! {go, Next},
    go_round([Next | Rest], First).

%% The numbers stay small, so that none is on a heap.
value_of(Key) -> (Key * 16#9E3779B9) band 16#3FFFFFFF.

key_for(Index, Count) -> (Index bxor (Index bsr 15)) * 16#D6E8FEB8 rem Count.
