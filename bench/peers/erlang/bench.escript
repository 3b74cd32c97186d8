#!/usr/bin/env escript
%% -*- erlang -*-
%%
%% The Erlang/OTP peer, compiled rather than interpreted. The harness sets the emulator's flags
%% (src/runtimes/erlang.rs), and MESSAGE_QUEUE_DATA for the processes that receive.
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
        {'DOWN', Monitor, process, _, {refused, Why}} ->
            io:format(standard_error, "~s~n", [Why]),
            halt(1);
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
    Fields = [io_lib:format("\"~s\":~.6f", [Name, float(Value)]) || {Name, Value} <- Metrics],
    Failures = [io_lib:format("\"~s: ~b instead of ~b\"", [What, Found, Due])
                || {What, Found, Due} <- Checks, Found =/= Due],
    io:format("{\"version\":\"OTP ~s\",\"workers\":~b,\"metrics\":{~s},\"failures\":[~s]}~n",
              [erlang:system_info(otp_release), erlang:system_info(schedulers_online),
               lists:join(",", Fields), lists:join(",", Failures)]).

%% === processes ===

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
      {"processes beyond the maximum", max(0, Count - Maximum), 0}]};

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
    Receiver = spawn_receiver(fun() -> add(0) end),
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
    {[{round_trip_ns, Elapsed / Count} | percentiles(Latencies)],
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
      {"processes that timed out early", atomics:get(Tally, 3), 0}]};

%% === tasks ===

run("tasks", #{count := Count, seconds := Seconds}) ->
    %% Tasks that are ready; that handled all messages, and their sum; that timed out; that exited, and
    %% the sum of their numbers; messages in the wrong order; tasks too early; and wrong entries.
    Tally = atomics:new(9, [{signed, false}]),
    Late = atomics:new(Count, [{signed, false}]),
    Map = ets:new(tasks, [public, {write_concurrency, true}, {read_concurrency, true}]),
    persistent_term:put(tasks, {Map, Tally, Late, Count, self(), Seconds * 1_000_000_000}),
    Start = clock(),
    Tasks = [spawn(fun() -> task(Index) end) || Index <- lists:seq(0, Count - 1)],
    Spawned = clock(),
    receive all_ready -> ok after 300_000 -> ok end,
    Ready = clock(),
    ReadyBytes = resident_bytes(),
    Going = clock(),
    go_round(Tasks, hd(Tasks)),
    receive all_handled -> ok after 300_000 -> ok end,
    Handled = clock(),
    receive all_tasks_exited -> ok after Seconds * 1000 + 300_000 -> ok end,
    Peak = peak_resident_bytes(),
    After = resident_bytes(),
    Sorted = list_to_tuple(lists:sort([atomics:get(Late, I) || I <- lists:seq(1, Count)])),
    At = fun(Quantile) -> element(max(1, ceil(Quantile * Count)), Sorted) end,
    Wrong = ets:foldl(fun({Key, Value}, Sum) -> Sum + 1 - right(Value, value_of(Key)) end, 0, Map),
    {[{spawn_ns, (Spawned - Start) / Count},
      {ready_ns, (Ready - Start) / Count},
      {ready_rss_bytes, ReadyBytes},
      {messages_per_s, Count * 4 * 1.0e9 / (Handled - Going)},
      {late_p50_ns, At(0.5)}, {late_p99_ns, At(0.99)}, {late_max_ns, At(1)},
      {peak_rss_bytes, Peak},
      {rss_after_bytes, After}],
     [{"tasks that were ready", atomics:get(Tally, 1), Count},
      {"entries of the map", ets:info(Map, size), Count},
      {"entries with a wrong value", Wrong + atomics:get(Tally, 9), 0},
      {"tasks that handled all their messages", atomics:get(Tally, 2), Count},
      {"the sum of the messages", atomics:get(Tally, 3), 4 * Count * (4 * Count - 1) div 2},
      {"messages received in the wrong order", atomics:get(Tally, 7), 0},
      {"tasks that timed out", atomics:get(Tally, 4), Count},
      {"tasks that timed out early", atomics:get(Tally, 8), 0},
      {"tasks that exited", atomics:get(Tally, 5), Count},
      {"the sum of their numbers", atomics:get(Tally, 6), Count * (Count - 1) div 2}]};

%% === pairs and ring ===

run("pairs", #{count := Count, pairs := Pairs}) ->
    {Elapsed, Checks} = relay(Count, Pairs, 2),
    {[{message_ns, Elapsed / Count}], Checks};

run("ring", #{count := Count, processes := Size}) ->
    {Elapsed, Checks} = relay(Count, 1, Size),
    {[{wall_s, Elapsed / 1.0e9}, {hop_ns, Elapsed / Count}], Checks};

%% === calls ===

run("calls", #{count := Count, callers := Callers, callees := CalleeCount, samples := Samples}) ->
    Callees = list_to_tuple([spawn_link(fun reply/0) || _ <- lists:seq(1, CalleeCount)]),
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
    {[{round_trip_ns, Elapsed / Count} | percentiles(Latencies)],
     [{"callers that finished, in two rounds", Finished + Sampled, 2 * Callers},
      {"correct replies", Warm + Replies + Correct, CalleeCount + Count + Samples},
      {"calls that were timed separately", length(Latencies), Samples}]};

%% === fan ===

run("fan", #{count := Count, receivers := Receivers, chunk := Chunk, settle := Settle}) ->
    Chunks = chunks(Receivers, Chunk, Count),
    {Sender, Tally} = start_sender(Chunks, fun open/0, fun() -> ok end),
    Start = clock(),
    Sender ! go,
    receive all_received -> ok after 300_000 -> ok end,
    Elapsed = clock() - Start,
    timer:sleep(Settle * 1000),
    {[{delivered_ns, Elapsed / Count}, {rss_after_bytes, resident_bytes()}],
     received_in_order(Chunks, Tally)};

%% === burst ===

run("burst", #{count := Count, receivers := Receivers, settle := Settle}) ->
    Driver = self(),
    Chunks = chunks(Receivers, 0, Count),
    %% A receiver that has received its first number waits for this message, whatever else arrives.
    Latch = fun() -> receive open -> ok end end,
    {Sender, Tally} = start_sender(Chunks, Latch, fun() -> Driver ! sent end),
    ResidentBefore = resident_bytes(),
    Sender ! go,
    receive sent -> ok after 300_000 -> ok end,
    Resident = resident_bytes(),
    Sender ! open,
    receive all_received -> ok after 300_000 -> ok end,
    Peak = peak_resident_bytes(),
    timer:sleep(Settle * 1000),
    {[{bytes_per_message, max(0, Resident - ResidentBefore) / Count},
      {peak_rss_bytes, Peak},
      {rss_after_bytes, resident_bytes()}],
     received_in_order(Chunks, Tally)};

%% === fairness ===

run("fairness", #{count := Count, flooders := FlooderCount, pause := Pause}) ->
    %% Flooders that have run and the sum of their indices, flooders that have stopped and the sum of
    %% their messages, messages in the wrong order, and 1 as soon as the flooders are to stop.
    Tally = atomics:new(6, [{signed, false}]),
    Shared = {Tally, FlooderCount, self()},
    Callee = spawn_link(fun reply/0),
    Flooders = [spawn_receiver(fun() -> flood(0, Index, Shared) end)
                || Index <- lists:seq(0, FlooderCount - 1)],
    Start = clock(),
    lists:foreach(fun(Flooder) -> Flooder ! 0 end, Flooders),
    receive all_running -> ok after 300_000 -> ok end,
    {Replies, Latencies} = call_seldom(Count, Pause, Callee, 0, []),
    atomics:put(Tally, 6, 1),
    receive all_stopped -> ok after 300_000 -> ok end,
    Flooded = clock() - Start,
    {percentiles(Latencies) ++ [{message_ns, Flooded / max(1, atomics:get(Tally, 4))}],
     [{"correct replies", Replies, Count},
      {"flooders that ran", atomics:get(Tally, 1), FlooderCount},
      {"the sum of their numbers", atomics:get(Tally, 2), FlooderCount * (FlooderCount - 1) div 2},
      {"flooders that stopped", atomics:get(Tally, 3), FlooderCount},
      {"messages received in the wrong order", atomics:get(Tally, 5), 0}]};

%% === skynet ===

run("skynet", #{count := Count}) ->
    Driver = self(),
    Start = clock(),
    spawn_link(fun() -> tree(Driver, 0, Count) end),
    Sum = receive {sum, Received} -> Received after 300_000 -> -1 end,
    Elapsed = clock() - Start,
    {[{wall_s, Elapsed / 1.0e9}], [{"the sum", Sum, Count * (Count - 1) div 2}]}.

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

task(Index) ->
    {Map, Tally, Late, Count, Driver, Timeout} = persistent_term:get(tasks),
    ets:insert(Map, {Index, value_of(Index)}),
    Key = key_for(Index, Count),
    case ets:lookup(Map, Key) of
        [{_, Value}] -> atomics:add(Tally, 9, 1 - right(Value, value_of(Key)));
        [] -> ok
    end,
    count_task(1, Tally, Count, Driver, all_ready),
    Next = receive {go, Address} -> Address end,
    lists:foreach(fun(Number) -> Next ! {item, Index, Number} end, [0, 1, 2, 3]),
    Sum = take_items(0, 0, (Index + Count - 1) rem Count, Tally),
    atomics:add(Tally, 3, Sum),
    count_task(2, Tally, Count, Driver, all_handled),
    Since = clock(),
    receive _ -> ok
    after Timeout div 1_000_000 ->
        case clock() - Since - Timeout of
            After when After >= 0 -> atomics:put(Late, Index + 1, After);
            _ -> atomics:add(Tally, 8, 1)
        end,
        atomics:add(Tally, 4, 1)
    end,
    atomics:add(Tally, 6, Index),
    count_task(5, Tally, Count, Driver, all_tasks_exited).

take_items(4, Sum, _, _) -> Sum;
take_items(Due, Sum, Before, Tally) ->
    receive
        {item, From, Number} ->
            note({From, Number}, {Before, Due}, Tally, 7),
            take_items(Due + 1, Sum + 4 * From + Number, Before, Tally)
    end.

count_task(At, Tally, Count, Driver, Complete) ->
    case atomics:add_get(Tally, At, 1) of
        Count -> Driver ! Complete;
        _ -> ok
    end.

%% Sends each task the address of the next; the last task's next is the first.
go_round([Last], First) -> Last ! {go, First};
go_round([Task, Next | Rest], First) ->
    Task ! {go, Next},
    go_round([Next | Rest], First).

%% The numbers stay small, so that none is on a heap.
value_of(Key) -> (Key * 16#9E3779B9) band 16#3FFFFFFF.

key_for(Index, Count) -> (Index bxor (Index bsr 15)) * 16#D6E8FEB8 rem Count.

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

%% Starts a receiver, in the sense of src/workloads/receiver.rs. In the row `erlang-tuned` its queue is
%% off its heap.
spawn_receiver(Receive) ->
    Where = case os:getenv("MESSAGE_QUEUE_DATA") of "off_heap" -> off_heap; _ -> on_heap end,
    spawn_opt(Receive, [link, {message_queue_data, Where}]).

%% The number of units that a part gets of Count; two parts differ by at most one.
share(Count, Part, Parts) -> Count * (Part + 1) div Parts - Count * Part div Parts.

percentiles(Latencies) ->
    Sorted = list_to_tuple(lists:sort(Latencies)),
    At = fun(Quantile) -> element(max(1, ceil(Quantile * tuple_size(Sorted))), Sorted) end,
    [{p50_ns, At(0.5)}, {p99_ns, At(0.99)}].

%% Passes Count messages through rings of processes, each ring its share. A process adds one to the
%% number that it receives, and sends it on.
relay(Count, Rings, Size) ->
    Misplaced = atomics:new(1, [{signed, false}]),
    Firsts = [{start_ring(Size, share(Count, Ring, Rings), Misplaced), share(Count, Ring, Rings)}
              || Ring <- lists:seq(0, Rings - 1)],
    %% A ring without a share of the messages does not begin.
    Begun = [First || {First, Messages} <- Firsts, Messages > 0],
    Start = clock(),
    lists:foreach(fun(First) -> First ! 0 end, Begun),
    {Finished, Passed} = await_rings(length(Begun), 0, 0),
    Elapsed = clock() - Start,
    {Elapsed,
     [{"rings that finished", Finished, length(Begun)},
      {"messages passed on", Passed, Count},
      {"messages received in the wrong order", atomics:get(Misplaced, 1), 0}]}.

start_ring(Size, Messages, Misplaced) ->
    Driver = self(),
    Links = [spawn_receiver(fun() ->
                 receive {next, Next} -> pass(Next, Place, Size, Messages, Driver, Misplaced) end
             end)
             || Place <- lists:seq(0, Size - 1)],
    First = hd(Links),
    lists:foreach(fun({Link, Next}) -> Link ! {next, Next} end,
                  lists:zip(Links, tl(Links) ++ [First])),
    First.

pass(Next, Due, Size, Messages, Driver, Misplaced) ->
    receive
        Value when is_integer(Value) ->
            note(Value, Due, Misplaced, 1),
            case Value + 1 of
                Messages -> Driver ! {finished, Messages};
                Sent -> Next ! Sent
            end,
            pass(Next, Value + Size, Size, Messages, Driver, Misplaced)
    end.

%% Counts a number that is received in the wrong order.
note(Due, Due, _, _) -> ok;
note(_, _, Tally, Index) -> atomics:add(Tally, Index, 1).

await_rings(Begun, Begun, Passed) -> {Begun, Passed};
await_rings(Begun, Finished, Passed) ->
    receive
        {finished, Messages} -> await_rings(Begun, Finished + 1, Passed + Messages)
    after 300_000 -> {Finished, Passed}
    end.

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

%% The first chunk, one number for each receiver, then Count numbers in chunks that are a multiple of
%% the receivers; in a single chunk if Chunk is zero.
chunks(Receivers, 0, Count) -> {Receivers, Receivers + Count, Receivers + Count};
chunks(Receivers, Chunk, Count) ->
    {Receivers, (Chunk + Receivers - 1) div Receivers * Receivers, Receivers + Count}.

%% The end of the chunk that begins with a number.
chunk_end(0, {Receivers, _, Total}) -> min(Receivers, Total);
chunk_end(Begin, {_, Chunk, Total}) -> min(Begin + Chunk, Total).

%% Starts the sender of `fan` and `burst`, which starts the receivers; returns when they have received
%% the first chunk. The sender sends the other chunks on the message `go`. After its first number
%% a receiver runs Latch, and after each further chunk the sender runs Sent.
start_sender(Chunks, Latch, Sent) ->
    %% Reports of the receivers, the sum of their numbers, the reports due, and numbers in the wrong
    %% order.
    Tally = atomics:new(4, [{signed, false}]),
    Driver = self(),
    Sender = spawn_link(fun() ->
        Receivers = start_collectors(Chunks, Latch, Tally),
        Next = send_chunk(0, Chunks, Receivers, Tally),
        receive received -> ok after 300_000 -> ok end,
        Driver ! ready,
        receive go -> ok end,
        send_chunks(Next, Chunks, Receivers, Tally, Sent),
        Driver ! all_received
    end),
    receive ready -> ok end,
    {Sender, Tally}.

start_collectors({Receivers, _, _} = Chunks, Latch, Tally) ->
    Sender = self(),
    [spawn_receiver(fun() ->
         First = receive Value when is_integer(Value) -> Value end,
         note(First, Index, Tally, 4),
         report(First, Tally, Sender),
         Latch(),
         collect(First + Receivers, chunk_end(Receivers, Chunks), 0, Chunks, Tally, Sender)
     end)
     || Index <- lists:seq(0, Receivers - 1)].

%% A receiver reports once per chunk.
collect(Due, End, Sum, {Receivers, _, _} = Chunks, Tally, Sender) ->
    receive
        Value when is_integer(Value) ->
            note(Value, Due, Tally, 4),
            case Value + Receivers of
                Next when Next >= End ->
                    report(Sum + Value, Tally, Sender),
                    collect(Next, chunk_end(End, Chunks), 0, Chunks, Tally, Sender);
                Next -> collect(Next, End, Sum + Value, Chunks, Tally, Sender)
            end
    end.

report(Sum, Tally, Sender) ->
    atomics:add(Tally, 2, Sum),
    Count = atomics:add_get(Tally, 1, 1),
    case atomics:get(Tally, 3) of
        Count -> Sender ! received;
        _ -> ok
    end.

%% Only with a latch does a message `open` come, and before anything is received.
send_chunks(Total, {_, _, Total}, _, _, _) -> ok;
send_chunks(Begin, Chunks, Receivers, Tally, Sent) ->
    End = send_chunk(Begin, Chunks, Receivers, Tally),
    Sent(),
    receive
        received -> ok;
        open ->
            lists:foreach(fun(Receiver) -> Receiver ! open end, Receivers),
            receive received -> ok after 300_000 -> ok end
    after 300_000 -> ok
    end,
    send_chunks(End, Chunks, Receivers, Tally, Sent).

send_chunk(Begin, {Count, _, _} = Chunks, Receivers, Tally) ->
    End = chunk_end(Begin, Chunks),
    %% Every chunk begins with the first receiver; the last chunk may not reach all of them.
    atomics:add(Tally, 3, min(Count, End - Begin)),
    send_round(Begin, End, Receivers, Receivers),
    End.

send_round(End, End, _, _) -> ok;
send_round(Value, End, [], Receivers) -> send_round(Value, End, Receivers, Receivers);
send_round(Value, End, [Receiver | Rest], Receivers) ->
    Receiver ! Value,
    send_round(Value + 1, End, Rest, Receivers).

received_in_order({_, _, Total}, Tally) ->
    [{"the sum received", atomics:get(Tally, 2), Total * (Total - 1) div 2},
     {"messages received in the wrong order", atomics:get(Tally, 4), 0}].

%% The latch of `fan`, which is always open.
open() -> ok.

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

%% A process of the tree: it sends the sum of its leaves to its parent, and exits.
tree(Parent, Leaf, End) when End - Leaf =:= 1 -> Parent ! {sum, Leaf};
tree(Parent, Begin, End) ->
    Node = self(),
    Count = End - Begin,
    Parts = min(Count, 10),
    start_children(0, Parts, Count, Begin, Node),
    Parent ! {sum, add_children(Parts, 0)}.

start_children(Parts, Parts, _, _, _) -> ok;
start_children(Part, Parts, Count, Begin, Node) ->
    First = Begin + Count * Part div Parts,
    End = Begin + Count * (Part + 1) div Parts,
    spawn(fun() -> tree(Node, First, End) end),
    start_children(Part + 1, Parts, Count, Begin, Node).

add_children(0, Sum) -> Sum;
add_children(Left, Sum) -> receive {sum, Part} -> add_children(Left - 1, Sum + Part) end.

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
