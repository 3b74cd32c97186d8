%% `monitors`: watchers monitor processes, which then end.
-module(bench_monitors).
-export([run/2]).
-import(bench_measure, [clock/0, resident_bytes/0]).
-import(bench_receiver, [spawn_receiver/1]).

run("monitors", #{count := Count, watchers := WatcherCount}) ->
    Answered = atomics:new(1, [{signed, false}]),
    Driver = self(),
    Processes = [spawn(fun() -> watched(Answered, Driver) end) || _ <- lists:seq(1, Count)],
    ask_watched(Processes, Count),
    %% A watcher has the list before memory is read, and makes its monitors on the message `watch`.
    Watchers = [spawn_receiver(fun() -> watcher(Processes, Count, Driver) end)
                || _ <- lists:seq(1, WatcherCount)],
    Ready = await_watchers(ready, Watchers, []),
    ResidentBefore = resident_bytes(),
    Start = clock(),
    lists:foreach(fun(Watcher) -> Watcher ! watch end, Watchers),
    Watching = await_watchers(watching, Watchers, []),
    %% A monitor is a signal; the message after it is handled when the process has the monitor.
    ask_watched(Processes, 2 * Count),
    Established = clock(),
    Resident = resident_bytes(),
    Ending = clock(),
    lists:foreach(fun(Process) -> Process ! 'end' end, Processes),
    Told = await_watchers(told, Watchers, []),
    Down = clock(),
    lists:foreach(fun(Watcher) -> Watcher ! {report, Processes} end, Watchers),
    Reports = await_watchers(report, Watchers, []),
    All = Count * WatcherCount,
    {[{monitor_ns, (Established - Start) / All},
      {down_ns, (Down - Ending) / All},
      {bytes_per_monitor, max(0, Resident - ResidentBefore) / All}],
     [{"messages that were answered", atomics:get(Answered, 1), 2 * Count},
      {"watchers that were ready, made their monitors, and were told of all ends",
       length(Ready) + length(Watching) + length(Told), 3 * WatcherCount},
      {"processes that each watcher was told of once", lists:sum([Once || {Once, _, _} <- Reports]), All},
      {"notifications beyond these", lists:sum([Surplus || {_, Surplus, _} <- Reports]), 0},
      {"notifications of another reason", lists:sum([Abnormal || {_, _, Abnormal} <- Reports]), 0}]}.

watched(Answered, Driver) ->
    receive
        {ask, Due} ->
            case atomics:add_get(Answered, 1, 1) of
                Due -> Driver ! all_answered;
                _ -> ok
            end,
            watched(Answered, Driver);
        'end' -> ok
    end.

ask_watched(Processes, Due) ->
    lists:foreach(fun(Process) -> Process ! {ask, Due} end, Processes),
    receive all_answered -> ok after 300_000 -> ok end.

watcher(Processes, Count, Driver) ->
    Driver ! {ready, self(), ok},
    receive watch -> ok end,
    lists:foreach(fun(Process) -> erlang:monitor(process, Process) end, Processes),
    Driver ! {watching, self(), ok},
    {Found, Abnormal} = await_downs(Count, [], 0),
    Driver ! {told, self(), ok},
    receive
        {report, Due} ->
            Twice = Count - length(lists:usort(Found)),
            Once = Count - length(Due -- Found) - Twice,
            Surplus = receive {'DOWN', _, process, _, _} -> 1 after 0 -> 0 end,
            Driver ! {report, self(), {Once, Surplus, Abnormal}}
    end.

await_downs(0, Found, Abnormal) -> {Found, Abnormal};
await_downs(Left, Found, Abnormal) ->
    receive
        {'DOWN', _, process, Process, normal} -> await_downs(Left - 1, [Process | Found], Abnormal);
        {'DOWN', _, process, Process, _} -> await_downs(Left - 1, [Process | Found], Abnormal + 1)
    end.

%% Collects what the watchers say of a kind; without those that are silent.
await_watchers(_, [], Said) -> Said;
await_watchers(Kind, [Watcher | Rest], Said) ->
    receive {Kind, Watcher, What} -> await_watchers(Kind, Rest, [What | Said])
    after 300_000 -> await_watchers(Kind, [], Said)
    end.
