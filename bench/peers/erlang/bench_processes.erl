%% `processes`: processes that wait for `die` are spawned in a loop.
-module(bench_processes).
-export([run/2]).
-import(bench_measure, [clock/0]).

run("processes", #{count := Count, maximum := Maximum}) ->
    Before = erlang:system_info(process_count),
    {Cpu, _} = statistics(runtime),
    Start = clock(),
    Processes = spawn_waiting(Count, Maximum),
    Wall = clock() - Start,
    {CpuAfter, _} = statistics(runtime),
    Alive = min(Count, erlang:system_info(process_count) - Before),
    lists:foreach(fun(Process) -> Process ! die end, Processes),
    Left = await_exits(Before, clock() + 300_000_000_000),
    {[{wall_ns, Wall / Count}, {cpu_ns, (CpuAfter - Cpu) * 1.0e6 / Count}],
     [{"processes that were alive at once", Alive, Count},
      {"processes that exited", Count - Left, Count},
      {"processes beyond the maximum", max(0, Count - Maximum), 0}]}.

%% Spawns processes and collects them as the original does. The emulator's limit is the next power of two.
spawn_waiting(Count, Maximum) ->
    try for(1, Count, fun() -> spawn(fun wait_to_die/0) end)
    catch error:system_limit ->
        Limit = erlang:system_info(process_limit),
        exit({refused, io_lib:format("~b processes requested, ~b allowed: the limit of ~b processes is reached",
                                     [Count, Maximum, Limit])})
    end.

for(N, N, Function) -> [Function()];
for(I, N, Function) -> [Function() | for(I + 1, N, Function)].

wait_to_die() -> receive die -> void end.

%% Waits until there are no more processes than before; returns the number of those left.
await_exits(Before, Deadline) ->
    Left = max(0, erlang:system_info(process_count) - Before),
    case Left =:= 0 orelse clock() > Deadline of
        true -> Left;
        false -> timer:sleep(1), await_exits(Before, Deadline)
    end.
