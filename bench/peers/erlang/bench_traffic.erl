%% `traffic`: clients call processes and send to them, the first ones far more often than the others. A small state is a
%% tuple, a large one a map, of which an update copies a part.
-module(bench_traffic).
-export([run/2]).
-import(bench_measure, [clock/0, quantiles/2, resident_bytes/0]).
-import(bench_service, [right/2]).

%% Some two milliseconds.
-define(LONG_STEPS, 30_000).

run("traffic", #{count := Count, processes := Processes, clients := Clients, busy := Busy} = Settings) ->
    Driver = self(),
    Idle = case Settings of #{handler := "idle", idle := Seconds} -> Seconds * 1000; _ -> infinity end,
    State = case Settings of
        #{state := "large"} -> maps:from_list([{Word, 0} || Word <- lists:seq(0, 511)]);
        _ -> list_to_tuple(lists:duplicate(8, 0))
    end,
    Before = resident_bytes(),
    Start = clock(),
    {Desks, Right} = start(Processes, State, Idle, Driver, [], 0),
    Started = clock() - Start,
    Grown = resident_bytes() - Before,
    Work = [spawn_link(fun() -> client(Client, Desks, Settings, Driver) end) || Client <- lists:seq(0, Clients - 1)],
    lists:foreach(fun(_) -> receive ready -> ok end end, Work),
    Flag = atomics:new(1, []),
    Begin = clock(),
    lists:foreach(fun(_) ->
        spawn_link(fun() ->
            Desk = spawn_link(fun() -> desk(list_to_tuple(lists:duplicate(8, 0)), infinity, clock(), Driver) end),
            Driver ! {busy, keep_busy(Desk, Flag, 0)}
        end)
    end, lists:seq(1, Busy)),
    lists:foreach(fun(Client) -> Client ! go end, Work),
    {Correct, Calls, Latencies} = await(Clients, 0, 0, []),
    Elapsed = clock() - Begin,
    atomics:put(Flag, 1, 1),
    Long = lists:sum([receive {busy, Made} -> Made end || _ <- lists:seq(1, Busy)]),
    LongTime = clock() - Begin,
    {Sum, Early} = case Idle of
        infinity -> {lists:sum([call(Desk, sum, 0, <<>>) || Desk <- tuple_to_list(Desks)]), 0};
        _ -> timed_out(Processes, 0, 0)
    end,
    {[{start_ns, Started / Processes}, {bytes_per_process, max(0, Grown) / Processes},
      {operation_ns, Elapsed / Count}, quantiles(latency, Latencies)]
     ++ [{long_ns, LongTime * Busy / max(1, Long)} || Busy > 0],
     [{"correct replies", Right + Correct, Processes + Calls},
      {"processes that timed out early", Early, 0},
      {"the sum of all states", Sum, Processes * (Processes - 1) div 2 + Count * (Count - 1) div 2}]}.

start(0, _, _, _, Desks, Right) -> {list_to_tuple(Desks), Right};
start(Left, State, Idle, Driver, Desks, Right) ->
    Desk = spawn_link(fun() -> desk(State, Idle, clock(), Driver) end),
    Reply = call(Desk, add, Left - 1, <<>>),
    start(Left - 1, State, Idle, Driver, [Desk | Desks], Right + right(Reply, Left)).

%% The last message came at Last, which only a process with a time-out reads.
desk(State, Idle, Last, Driver) ->
    receive
        {add, Value, Body} ->
            desk(added(State, Value, Body), Idle, now(Idle, Last), Driver);
        {add, From, Reference, Value, Body} ->
            Next = added(State, Value, Body),
            From ! {Reference, Value + 1},
            desk(Next, Idle, now(Idle, Last), Driver);
        {compute, From, Reference, Value, _} ->
            compute(?LONG_STEPS, rand:seed_s(exsp, Value)),
            From ! {Reference, Value + 1},
            desk(State, Idle, Last, Driver);
        {sum, From, Reference, _, _} ->
            From ! {Reference, sum(State)},
            desk(State, Idle, Last, Driver)
    after Idle ->
        Driver ! {timed_out, sum(State), clock() - Last < Idle * 1_000_000}
    end.

now(infinity, Last) -> Last;
now(_, _) -> clock().

added(State, Value, <<>>) -> added(State, Value);
added(State, Value, Body) ->
    Due = Value band 255,
    case binary:last(Body) of Due -> added(State, Value); _ -> State end.

added(State, Value) when is_tuple(State) ->
    Word = Value rem tuple_size(State) + 1,
    setelement(Word, State, element(Word, State) + Value);
added(State, Value) ->
    Word = Value rem map_size(State),
    #{Word := Sum} = State,
    State#{Word := Sum + Value}.

sum(State) when is_tuple(State) -> lists:sum(tuple_to_list(State));
sum(State) -> lists:sum(maps:values(State)).

compute(0, Seed) -> Seed;
compute(Left, Seed) ->
    {_, Next} = rand:uniform_s(Seed),
    compute(Left - 1, Next).

call(Desk, Task, Value, Body) ->
    Reference = make_ref(),
    Desk ! {Task, self(), Reference, Value, Body},
    receive {Reference, Reply} -> Reply end.

keep_busy(Desk, Flag, Made) ->
    case atomics:get(Flag, 1) of
        0 -> Next = Made + 1, Next = call(Desk, compute, Made, <<>>), keep_busy(Desk, Flag, Next);
        1 -> Made
    end.

client(Client, Desks, #{count := Count, clients := Clients, calls := Calls, payload := Payload}, Driver) ->
    First = Count * Client div Clients,
    End = Count * (Client + 1) div Clients,
    Work = draw(End - First, tuple_size(Desks), Desks, Calls, rand:seed_s(exsp, Client), []),
    Driver ! ready,
    receive go -> ok end,
    Driver ! {client, work(Work, First, Payload, 0, [])}.

draw(0, _, _, _, _, Work) -> Work;
draw(Left, Processes, Desks, Calls, Seed, Work) ->
    {Part, Seed1} = rand:uniform_s(Seed),
    {Hundredth, Seed2} = rand:uniform_s(100, Seed1),
    Rank = min(Processes, max(1, trunc(math:pow(Processes + 1, Part)))) - 1,
    Desk = element(Rank * 4_294_967_291 rem Processes + 1, Desks),
    draw(Left - 1, Processes, Desks, Calls, Seed2, [{Desk, Hundredth =< Calls} | Work]).

work([], _, _, Correct, Latencies) -> {Correct, Latencies};
work([{Desk, IsCall} | Rest], Value, Payload, Correct, Latencies) ->
    Body = body(Payload, Value),
    case IsCall of
        true ->
            Start = clock(),
            Reply = call(Desk, add, Value, Body),
            Latency = clock() - Start,
            work(Rest, Value + 1, Payload, Correct + right(Reply, Value + 1), [Latency | Latencies]);
        false ->
            Desk ! {add, Value, Body},
            work(Rest, Value + 1, Payload, Correct, Latencies)
    end.

body(0, _) -> <<>>;
body(Payload, Value) -> <<0:((Payload - 1) * 8), Value:8>>.

await(0, Correct, Calls, Latencies) -> {Correct, Calls, Latencies};
await(Left, Correct, Calls, Latencies) ->
    receive
        {client, {Right, Timed}} ->
            await(Left - 1, Correct + Right, Calls + length(Timed), Timed ++ Latencies)
    end.

timed_out(0, Sum, Early) -> {Sum, Early};
timed_out(Left, Sum, Early) ->
    receive
        {timed_out, Of, false} -> timed_out(Left - 1, Sum + Of, Early);
        {timed_out, Of, true} -> timed_out(Left - 1, Sum + Of, Early + 1)
    after 300_000 -> {Sum, Early}
    end.
