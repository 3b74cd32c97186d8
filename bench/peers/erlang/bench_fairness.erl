%% `fairness`: calls while processes flood themselves.
-module(bench_fairness).
-export([run/2]).
-import(bench_measure, [clock/0, quantiles/2]).
-import(bench_receiver, [note/4, spawn_receiver/1]).
-import(bench_service, [call/2]).

run("fairness", #{count := Count, flooders := FlooderCount, pause := Pause}) ->
    %% Flooders that have run and the sum of their indices, flooders that have stopped and the sum of
    %% their messages, messages in the wrong order, and 1 as soon as the flooders are to stop.
    Tally = atomics:new(6, [{signed, false}]),
    Shared = {Tally, FlooderCount, self()},
    Callee = spawn_link(fun bench_service:reply/0),
    Flooders = [spawn_receiver(fun() -> flood(0, Index, Shared) end)
                || Index <- lists:seq(0, FlooderCount - 1)],
    Start = clock(),
    lists:foreach(fun(Flooder) -> Flooder ! 0 end, Flooders),
    receive all_running -> ok after 300_000 -> ok end,
    {Replies, Latencies} = call_seldom(Count, Pause, Callee, 0, []),
    atomics:put(Tally, 6, 1),
    receive all_stopped -> ok after 300_000 -> ok end,
    Flooded = clock() - Start,
    {[quantiles(latency, Latencies), {message_ns, Flooded / max(1, atomics:get(Tally, 4))}],
     [{"correct replies", Replies, Count},
      {"flooders that ran", atomics:get(Tally, 1), FlooderCount},
      {"the sum of their numbers", atomics:get(Tally, 2), FlooderCount * (FlooderCount - 1) div 2},
      {"flooders that stopped", atomics:get(Tally, 3), FlooderCount},
      {"messages received in the wrong order", atomics:get(Tally, 5), 0}]}.

flood(Due, Index, {Tally, Flooders, Driver} = Shared) ->
    receive
        Value when is_integer(Value) ->
            note(Value, Due, Tally, 5),
            case Value of
                0 -> count_flooder(1, Index, Flooders, Tally, Driver, all_running);
                _ -> ok
            end,
            case atomics:get(Tally, 6) of
                1 -> count_flooder(3, Value + 1, Flooders, Tally, Driver, all_stopped);
                0 -> self() ! Value + 1
            end,
            flood(Value + 1, Index, Shared)
    end.

count_flooder(At, Value, Flooders, Tally, Driver, Complete) ->
    atomics:add(Tally, At + 1, Value),
    case atomics:add_get(Tally, At, 1) of
        Flooders -> Driver ! Complete;
        _ -> ok
    end.

call_seldom(0, _, _, Replies, Latencies) -> {Replies, Latencies};
call_seldom(Left, Pause, Callee, Replies, Latencies) ->
    timer:sleep(Pause),
    Start = clock(),
    Right = call(Callee, Left),
    call_seldom(Left - 1, Pause, Callee, Replies + Right, [clock() - Start | Latencies]).
