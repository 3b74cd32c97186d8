%% `spawn`: live processes with a number each; they count themselves on a message, and exit on another.
-module(bench_spawn).
-export([run/2]).
-import(bench_measure, [clock/0, peak_resident_bytes/0, resident_bytes/0]).

run("spawn", #{count := Count, chunk := Chunk}) ->
    Tally = atomics:new(4, [{signed, false}]),
    Driver = self(),
    ResidentBefore = resident_bytes(),
    Start = clock(),
    Processes = spawn_all(0, Count, Tally, Driver, []),
    Spawned = clock(),
    count_all(Processes, Chunk, 0, Tally),
    Ready = clock(),
    Resident = resident_bytes(),
    Stopping = clock(),
    stop_all(Processes, Chunk, 0),
    Exited = clock(),
    Sum = Count * (Count - 1) div 2,
    {[{spawn_ns, (Spawned - Start) / Count},
      {ready_ns, (Ready - Start) / Count},
      {bytes_per_process, max(0, Resident - ResidentBefore) / Count},
      {peak_rss_bytes, peak_resident_bytes()},
      {exit_ns, (Exited - Stopping) / Count}],
     [{"processes that counted themselves", atomics:get(Tally, 1), Count},
      {"the sum of their states", atomics:get(Tally, 2), Sum},
      {"processes that exited", atomics:get(Tally, 3), Count},
      {"the sum of their last states", atomics:get(Tally, 4), Sum}]}.

%% An exit counts as observed when the process evaluates its last expression; nothing that the
%% process holds is used after that.
spawn_all(Count, Count, _, _, Processes) -> Processes;
spawn_all(Value, Count, Tally, Driver, Processes) ->
    Process = spawn(fun() -> wait(Value, Tally, Driver) end),
    spawn_all(Value + 1, Count, Tally, Driver, [Process | Processes]).

wait(Value, Tally, Driver) ->
    receive
        {count, Due} ->
            atomics:add(Tally, 2, Value),
            case atomics:add_get(Tally, 1, 1) of
                Due -> Driver ! all_counted;
                _ -> ok
            end,
            wait(Value, Tally, Driver);
        {stop, Due} ->
            atomics:add(Tally, 4, Value),
            case atomics:add_get(Tally, 3, 1) of
                Due -> Driver ! all_exited;
                _ -> ok
            end
    end.

count_all([], _, _, _) -> ok;
count_all(Processes, Chunk, Counted, Tally) ->
    {Now, Later, Due} = chunk(Processes, Chunk, [], Counted),
    lists:foreach(fun(Process) -> Process ! {count, Due} end, Now),
    receive all_counted -> ok after 300_000 -> ok end,
    count_all(Later, Chunk, Due, Tally).

%% Returns the next chunk, the rest, and the number of processes taken so far, this chunk included.
chunk([], _, Now, Due) -> {Now, [], Due};
chunk(Later, 0, Now, Due) -> {Now, Later, Due};
chunk([Process | Later], Left, Now, Due) -> chunk(Later, Left - 1, [Process | Now], Due + 1).

stop_all([], _, _) -> ok;
stop_all(Processes, Chunk, Stopped) ->
    {Now, Later, Due} = chunk(Processes, Chunk, [], Stopped),
    lists:foreach(fun(Process) -> Process ! {stop, Due} end, Now),
    receive all_exited -> ok after 300_000 -> ok end,
    stop_all(Later, Chunk, Due).
