%% Parts that the workloads of Savina share: the driver's clock, and Savina's generator of random numbers.
%%
%% The module savina_W does the steps of src/workloads/savina/W.rs. Its first process starts all others,
%% linked to itself, so that a failure of any of them ends the run.
-module(savina).
-export([advance/2, busy/1, measure/1, next/1, start/2]).
-import(bench_measure, [clock/0]).

%% Runs the first process until it returns its report; returns the report and the time in seconds.
measure(First) ->
    Driver = self(),
    Start = clock(),
    spawn_link(fun() -> Driver ! {report, First()} end),
    receive
        {report, Report} -> {Report, (clock() - Start) / 1.0e9}
    after 300_000 -> exit({refused, "no report within 300 s"})
    end.

%% Starts Count processes with the indices from 0; returns them in order.
start(Count, Body) -> [spawn_link(fun() -> Body(Index) end) || Index <- lists:seq(0, Count - 1)].

%% The number after another; an actor starts with its index plus one.
next(Value) -> (Value * 1309 + 13849) band 65535.

%% Keeps the scheduler for some steps of a generator.
busy(Steps) -> advance(1, Steps).

advance(Value, 0) -> Value;
advance(Value, Steps) -> advance(next(Value), Steps - 1).
