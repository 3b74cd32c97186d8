%% `call`, `calls` and `churn`: calls in sequence, calls by many processes at once, and one call per process.
-module(bench_calls).
-export([run/2]).
-import(bench_measure, [clock/0, quantiles/2, resident_bytes/0]).
-import(bench_receiver, [share/3]).
-import(bench_service, [call/2, right/2]).

run("call", #{count := Count, callees := CalleeCount, samples := Samples}) ->
    Callees = list_to_tuple([spawn_link(fun bench_service:reply/0) || _ <- lists:seq(1, CalleeCount)]),
    Seed = rand:seed_s(exsp, 1),
    Warm = lists:sum([call(element(I, Callees), I) || I <- lists:seq(1, CalleeCount)]),
    Start = clock(),
    {Replies, Seed1} = call_all(Count, Callees, Seed, 0),
    Elapsed = clock() - Start,
    {Correct, Latencies} = sample(Samples, Callees, Seed1, 0, []),
    {[{round_trip_ns, Elapsed / Count}, quantiles(latency, Latencies)],
     [{"correct replies", Warm + Replies + Correct, CalleeCount + Count + Samples}]};

run("churn", #{count := Count, warmup := Warmup}) ->
    Tally = atomics:new(2, [{signed, false}]),
    Cycles = Warmup + Count,
    Warm = cycle_all(0, Warmup, Tally),
    ResidentBefore = resident_bytes(),
    Start = clock(),
    Replies = cycle_all(Warmup, Cycles, Tally),
    Elapsed = clock() - Start,
    Resident = resident_bytes(),
    {[{cycle_ns, Elapsed / Count}, {rss_growth_bytes, max(0, Resident - ResidentBefore)}],
     [{"correct replies", Warm + Replies, Cycles},
      {"processes that exited", atomics:get(Tally, 1), Cycles},
      {"the sum of their states", atomics:get(Tally, 2), Cycles * (Cycles - 1) div 2}]};

run("calls", #{count := Count, callers := Callers, callees := CalleeCount, samples := Samples}) ->
    Callees = list_to_tuple([spawn_link(fun bench_service:reply/0) || _ <- lists:seq(1, CalleeCount)]),
    Warm = lists:sum([call(element(I, Callees), I) || I <- lists:seq(1, CalleeCount)]),
    Start = clock(),
    start_callers(Callers, Callees, fun(Callee, Caller) ->
        call_all(share(Count, Caller, Callers), {Callee}, none, 0)
    end),
    {Finished, Replies, _} = await_callers(Callers, 0, 0, []),
    Elapsed = clock() - Start,
    start_callers(Callers, Callees, fun(Callee, Caller) ->
        sample(share(Samples, Caller, Callers), {Callee}, none, 0, [])
    end),
    {Sampled, Correct, Latencies} = await_callers(Callers, 0, 0, []),
    {[{round_trip_ns, Elapsed / Count}, quantiles(latency, Latencies)],
     [{"callers that finished, in two rounds", Finished + Sampled, 2 * Callers},
      {"correct replies", Warm + Replies + Correct, CalleeCount + Count + Samples},
      {"calls that were timed separately", length(Latencies), Samples}]}.

call_all(0, _, Seed, Replies) -> {Replies, Seed};
call_all(Left, Callees, Seed, Replies) ->
    {Index, Seed1} = pick(Callees, Seed),
    call_all(Left - 1, Callees, Seed1, Replies + call(element(Index, Callees), Left)).

sample(0, _, _, Correct, Latencies) -> {Correct, Latencies};
sample(Left, Callees, Seed, Correct, Latencies) ->
    {Index, Seed1} = pick(Callees, Seed),
    Start = clock(),
    Reply = call(element(Index, Callees), Left),
    sample(Left - 1, Callees, Seed1, Correct + Reply, [clock() - Start | Latencies]).

cycle_all(Value, End, Tally) -> cycle_all(Value, End, End, Tally, self(), 0).

cycle_all(End, End, _, _, _, Replies) ->
    receive all_exited -> Replies after 300_000 -> Replies end;
cycle_all(Value, End, Due, Tally, Driver, Replies) ->
    Process = spawn(fun() -> guest(Value, Due, Tally, Driver) end),
    Reference = make_ref(),
    Process ! {call, Driver, Reference, 1},
    Right = receive {Reference, Reply} -> right(Reply, Value + 1) end,
    Process ! stop,
    cycle_all(Value + 1, End, Due, Tally, Driver, Replies + Right).

guest(State, Due, Tally, Driver) ->
    receive
        {call, From, Reference, Value} ->
            From ! {Reference, State + Value},
            guest(State, Due, Tally, Driver);
        stop ->
            atomics:add(Tally, 2, State),
            case atomics:add_get(Tally, 1, 1) of
                Due -> Driver ! all_exited;
                _ -> ok
            end
    end.

pick({_}, Seed) -> {1, Seed};
pick(Callees, Seed) -> rand:uniform_s(tuple_size(Callees), Seed).

%% Starts callers, each with its own callee or some with the same.
start_callers(Callers, Callees, Calls) ->
    Driver = self(),
    lists:foreach(fun(Caller) ->
        Callee = element(Caller rem tuple_size(Callees) + 1, Callees),
        spawn_link(fun() -> Driver ! {called, Calls(Callee, Caller)} end)
    end, lists:seq(0, Callers - 1)).

%% Returns the number of callers that finished, of their correct replies, and the latencies.
await_callers(0, Finished, Replies, Latencies) -> {Finished, Replies, Latencies};
await_callers(Left, Finished, Replies, Latencies) ->
    receive
        {called, {Correct, Timed}} when is_list(Timed) ->
            await_callers(Left - 1, Finished + 1, Replies + Correct, Timed ++ Latencies);
        {called, {Correct, _Seed}} ->
            await_callers(Left - 1, Finished + 1, Replies + Correct, Latencies)
    after 300_000 -> {Finished, Replies, Latencies}
    end.
