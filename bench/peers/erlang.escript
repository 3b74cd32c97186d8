#!/usr/bin/env escript
%% -*- erlang -*-
%%
%% The Erlang/OTP peer, compiled rather than interpreted. The harness sets `+P` and `+S`, so that N
%% processes fit and W schedulers run; all other emulator flags are at their defaults.
%%
%% Implements the workloads of src/workloads/*.rs, in the same order of steps, and prints the line
%% of JSON that src/outcome.rs describes. Arguments: WORKLOAD --count N --workers W --set KEY=VALUE…
-mode(compile).

main([Workload | Arguments]) ->
    Settings = settings(Arguments, #{}),
    %% The driver is a separate process, whose heap starts empty.
    {_, Monitor} = spawn_monitor(fun() -> exit({done, run(Workload, Settings)}) end),
    receive
        {'DOWN', Monitor, process, _, {done, {Metrics, Checks}}} -> print(Metrics, Checks);
        {'DOWN', Monitor, process, _, Reason} ->
            io:format(standard_error, "~p~n", [Reason]),
            halt(1)
    end.

settings(["--count", N | Rest], Settings) -> settings(Rest, Settings#{count => list_to_integer(N)});
settings(["--workers", W | Rest], Settings) -> settings(Rest, Settings#{workers => list_to_integer(W)});
settings(["--set", Setting | Rest], Settings) ->
    [Key, Value] = string:split(Setting, "="),
    settings(Rest, Settings#{list_to_atom(Key) => number_or_word(Value)});
settings([], Settings) -> Settings.

number_or_word(Text) ->
    try list_to_integer(Text) catch error:badarg -> Text end.

print(Metrics, Checks) ->
    Fields = [io_lib:format("\"~s\":~.3f", [Name, float(Value)]) || {Name, Value} <- Metrics],
    Failures = [io_lib:format("\"~s: ~b instead of ~b\"", [What, Found, Due])
                || {What, Found, Due} <- Checks, Found =/= Due],
    io:format("{\"version\":\"OTP ~s\",\"workers\":~b,\"metrics\":{~s},\"failures\":[~s]}~n",
              [erlang:system_info(otp_release), erlang:system_info(schedulers_online),
               lists:join(",", Fields), lists:join(",", Failures)]).

%% === spawn ===

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
      {"the sum of their last states", atomics:get(Tally, 4), Sum}]};

%% === send ===

run("send", #{count := Count, senders := Senders}) ->
    Driver = self(),
    Receiver = spawn_link(fun() -> add(0) end),
    Share = fun(Sender) -> Count * Sender div Senders end,
    Start = clock(),
    [spawn_link(fun() -> send_all(Receiver, Share(Sender), Share(Sender + 1)),
                         Driver ! {sent, clock()} end)
     || Sender <- lists:seq(0, Senders - 1)],
    LastDone = lists:max([receive {sent, Done} -> Done end || _ <- lists:seq(1, Senders)]),
    Receiver ! {sum, Driver},
    Sum = receive {sum, Received} -> Received end,
    Delivered = clock(),
    {[{send_ns, (LastDone - Start) / Count}, {delivered_ns, (Delivered - Start) / Count}],
     [{"the sum received", Sum, Count * (Count - 1) div 2}]};

%% === call ===

run("call", #{count := Count, callees := CalleeCount, samples := Samples}) ->
    Callees = list_to_tuple([spawn_link(fun reply/0) || _ <- lists:seq(1, CalleeCount)]),
    Seed = rand:seed_s(exsp, 1),
    Warm = lists:sum([call(element(I, Callees), I) || I <- lists:seq(1, CalleeCount)]),
    Start = clock(),
    {Replies, Seed1} = call_all(Count, Callees, Seed, 0),
    Elapsed = clock() - Start,
    {Correct, Latencies} = sample(Samples, Callees, Seed1, 0, []),
    Sorted = list_to_tuple(lists:sort(Latencies)),
    At = fun(Quantile) -> element(max(1, ceil(Quantile * Samples)), Sorted) end,
    {[{round_trip_ns, Elapsed / Count}, {p50_ns, At(0.5)}, {p99_ns, At(0.99)}],
     [{"correct replies", Warm + Replies + Correct, CalleeCount + Count + Samples}]};

%% === churn ===

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

%% === sleep ===

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

send_all(_, End, End) -> ok;
send_all(Receiver, Value, End) ->
    Receiver ! Value,
    send_all(Receiver, Value + 1, End).

add(Sum) ->
    receive
        Value when is_integer(Value) -> add(Sum + Value);
        {sum, From} -> From ! {sum, Sum}
    end.

reply() ->
    receive
        {call, From, Reference, Value} ->
            From ! {Reference, Value + 1},
            reply()
    end.

%% Returns 1 if the reply is right, otherwise 0. The reference ties the reply to its call, as in
%% gen_server.
call(Callee, Value) ->
    Reference = make_ref(),
    Callee ! {call, self(), Reference, Value},
    receive {Reference, Reply} -> right(Reply, Value + 1) end.

right(Reply, Reply) -> 1;
right(_, _) -> 0.

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

%% === clock and memory ===

clock() -> erlang:monotonic_time(nanosecond).

resident_bytes() -> kibibytes("/proc/self/smaps_rollup", "Rss:").

peak_resident_bytes() -> kibibytes("/proc/self/status", "VmHWM:").

kibibytes(Path, Field) ->
    {ok, Text} = file:read_file(Path),
    [Kibibytes] = [Number || Line <- string:lexemes(binary_to_list(Text), "\n"),
                             [Name, Number, "kB"] <- [string:lexemes(Line, " \t")],
                             Name =:= Field],
    list_to_integer(Kibibytes) * 1024.
