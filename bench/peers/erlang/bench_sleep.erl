%% `sleep`: processes wait for a message that does not come, time out and exit.
-module(bench_sleep).
-export([run/2]).
-import(bench_measure, [clock/0, peak_resident_bytes/0]).

run("sleep", #{count := Count, seconds := Seconds}) ->
    Tally = atomics:new(3, [{signed, false}]),
    Driver = self(),
    Start = clock(),
    Timing = {Tally, Driver, Count, Start, Seconds},
    Processes = sleep_all(0, Timing, []),
    receive all_timed_out -> ok after Seconds * 1000 + 300_000 -> ok end,
    Finished = clock(),
    {[{peak_rss_bytes, peak_resident_bytes()}, {finished_s, (Finished - Start) / 1.0e9}],
     [{"processes that were started", length(Processes), Count},
      {"processes that timed out", atomics:get(Tally, 1), Count},
      {"the sum of their states", atomics:get(Tally, 2), Count * (Count - 1) div 2},
      {"processes that timed out early", atomics:get(Tally, 3), 0}]}.

%% A process closes over its value and the tuple Timing.
sleep_all(Count, {_, _, Count, _, _}, Processes) -> Processes;
sleep_all(Value, Timing, Processes) ->
    Process = spawn(fun() -> sleep(Value, Timing) end),
    sleep_all(Value + 1, Timing, [Process | Processes]).

sleep(Value, {Tally, Driver, Count, Start, Seconds}) ->
    receive wake -> ok
    after Seconds * 1000 ->
        case clock() - Start < Seconds * 1_000_000_000 of
            true -> atomics:add(Tally, 3, 1);
            false -> ok
        end,
        atomics:add(Tally, 2, Value),
        case atomics:add_get(Tally, 1, 1) of
            Count -> Driver ! all_timed_out;
            _ -> ok
        end
    end.
