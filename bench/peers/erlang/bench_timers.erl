%% `timers`: a process starts timers, cancels most of them, and the others fire.
-module(bench_timers).
-export([run/2]).
-import(bench_measure, [clock/0, quantiles/2, resident_bytes/0]).

%% The process starts or cancels a hundred timers on a message, and the last of them is not cancelled; it
%% fires after 100 ms at least. A timer is cancelled without waiting for the scheduler that has it, and without an
%% answer, as the documentation of erlang:cancel_timer advises for speed.
run("timers", #{count := Count, live := Live0, seconds := Seconds, longest := Longest}) ->
    Fires = Count div 100,
    Live = min(Live0, Count),
    Driver = self(),
    Late = atomics:new(max(1, Fires), [{signed, true}]),
    [atomics:put(Late, I, -1) || I <- lists:seq(1, Fires)],
    Due = atomics:new(max(1, Fires), [{signed, true}]),
    %% Timers that fired, the sum of their numbers, that fired again, early, and though cancelled.
    Tally = atomics:new(5, [{signed, false}]),
    Plan = {Count, Live, Seconds * 1000, Longest, Due, Late, Tally},
    spawn_link(fun() ->
        Before = resident_bytes(),
        {StartNs, CancelNs, Resident} = timer_rounds(0, Plan, 0, 0, none),
        await_timers(clock() + (Longest + 20) * 1_000_000, Count, Plan),
        await_timers(clock() + 300_000_000_000, Fires, Plan),
        Driver ! {timed, StartNs, CancelNs, max(0, Resident - Before)}
    end),
    {StartNs, CancelNs, Grown} = receive {timed, S, C, G} -> {S, C, G} end,
    All = [atomics:get(Late, I) || I <- lists:seq(1, Fires)],
    Quantiles = quantiles(late, case [After || After <- All, After >= 0] of [] -> [0]; Fired -> Fired end),
    {[{start_ns, StartNs / Count},
      {cancel_ns, CancelNs / max(1, Count - Fires)},
      Quantiles,
      {bytes_per_timer, Grown / Live}],
     [{"timers that fired", atomics:get(Tally, 1), Fires},
      {"the sum of their numbers", atomics:get(Tally, 2), Fires * (Fires - 1) div 2 * 100 + 99 * Fires},
      {"timers that fired again", atomics:get(Tally, 3), 0},
      {"timers that fired early", atomics:get(Tally, 4), 0},
      {"timers that fired though cancelled", atomics:get(Tally, 5), 0}]}.

timer_rounds(Count, {Count, _, _, _, _, _, _}, StartNs, CancelNs, Resident) -> {StartNs, CancelNs, Resident};
timer_rounds(First, {Count, Live, _, _, _, _, _} = Plan, StartNs, CancelNs, Resident) ->
    End = min(First + Live, Count),
    Starting = clock(),
    Armed = start_timers(First, End, Plan, []),
    Started = clock() - Starting,
    Read = case Resident of none -> resident_bytes(); _ -> Resident end,
    Cancelling = clock(),
    cancel_timers(lists:reverse(Armed), 0, Plan),
    timer_rounds(End, Plan, StartNs + Started, CancelNs + clock() - Cancelling, Read).

start_timers(End, End, Plan, Armed) -> next_slice(Plan), Armed;
start_timers(Number, End, {_, _, Timeout, Longest, Due, _, _} = Plan, Armed) ->
    case Number rem 100 of
        99 ->
            K = Number div 100,
            Delay = 100 + K * 607 rem (max(0, Longest - 100) + 1),
            atomics:put(Due, K + 1, clock() + Delay * 1_000_000),
            erlang:start_timer(Delay, self(), Number),
            case Number + 1 of End -> ok; _ -> next_slice(Plan) end,
            start_timers(Number + 1, End, Plan, Armed);
        _ ->
            start_timers(Number + 1, End, Plan, [erlang:start_timer(Timeout, self(), Number) | Armed])
    end.

cancel_timers([], _, Plan) -> next_slice(Plan);
cancel_timers(Armed, 100, Plan) ->
    next_slice(Plan),
    cancel_timers(Armed, 0, Plan);
cancel_timers([Timer | Rest], Done, Plan) ->
    erlang:cancel_timer(Timer, [{async, true}, {info, false}]),
    cancel_timers(Rest, Done + 1, Plan).

%% Sends the process a message, and handles all until this one.
next_slice(Plan) ->
    self() ! next_slice,
    handle_timers(Plan).

handle_timers(Plan) ->
    receive
        {timeout, _, Number} -> fire(Number, Plan), handle_timers(Plan);
        next_slice -> ok
    end.

%% Handles timers until a time, or until so many have fired.
await_timers(End, Fires, {_, _, _, _, _, _, Tally} = Plan) ->
    case atomics:get(Tally, 1) < Fires andalso max(0, (End - clock() + 999_999) div 1_000_000) of
        false -> ok;
        Left ->
            receive {timeout, _, Number} -> fire(Number, Plan), await_timers(End, Fires, Plan)
            after Left -> ok
            end
    end.

fire(Number, {_, _, _, _, Due, Late, Tally}) when Number rem 100 =:= 99 ->
    At = Number div 100 + 1,
    case clock() - atomics:get(Due, At) of
        After when After < 0 -> atomics:add(Tally, 4, 1);
        After ->
            case atomics:exchange(Late, At, After) of
                -1 -> ok;
                _ -> atomics:add(Tally, 3, 1)
            end
    end,
    atomics:add(Tally, 1, 1),
    atomics:add(Tally, 2, Number);
fire(_, {_, _, _, _, _, _, Tally}) -> atomics:add(Tally, 5, 1).
