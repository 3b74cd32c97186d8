%% The Erlang/OTP peer: a program of modules compiled by `erlc`. The harness sets the emulator's flags
%% (src/runtimes/erlang.rs), and MESSAGE_QUEUE_DATA for the processes that receive.
%%
%% Class: isolated processes. A process has a heap of its own and is preempted after some 4,000
%% reductions; messages are copied, and a failure in a process leaves all others intact.
%%
%% Each module implements workloads of src/workloads/*.rs, in the same order of steps: run/2 takes a
%% workload and its settings, and returns metrics and checks. This one prints the line of JSON that
%% steps/src/outcome.rs describes. Arguments after -extra: WORKLOAD --count N --workers W --set KEY=VALUE…
-module(bench).
-export([main/0]).

main() ->
    [Workload | Arguments] = init:get_plain_arguments(),
    Settings = settings(Arguments, #{}),
    load(),
    %% The driver is a separate process, whose heap starts empty.
    {_, Monitor} = spawn_monitor(fun() -> exit({done, (module(Workload)):run(Workload, Settings)}) end),
    receive
        {'DOWN', Monitor, process, _, {done, {Metrics, Checks}}} ->
            print(Metrics, Checks),
            halt(0);
        {'DOWN', Monitor, process, _, {refused, Why}} ->
            io:format(standard_error, "~s~n", [Why]),
            halt(1);
        {'DOWN', Monitor, process, _, Reason} ->
            io:format(standard_error, "~p~n", [Reason]),
            halt(1)
    end.

%% Loads the modules that workloads call, so that none is loaded at its first call, while a clock runs.
load() ->
    Beams = filelib:wildcard(filename:join(filename:dirname(code:which(?MODULE)), "*.beam")),
    Own = [list_to_atom(filename:basename(Beam, ".beam")) || Beam <- Beams],
    ok = code:ensure_modules_loaded([lists, math, queue, rand, timer | Own]).

module("processes") -> bench_processes;
module("spawn") -> bench_spawn;
module("send") -> bench_send;
module("send-cost") -> bench_send_cost;
module("call") -> bench_calls;
module("calls") -> bench_calls;
module("churn") -> bench_calls;
module("sleep") -> bench_sleep;
module("tasks") -> bench_tasks;
module("pairs") -> bench_relay;
module("ring") -> bench_relay;
module("fan") -> bench_collector;
module("burst") -> bench_collector;
module("fairness") -> bench_fairness;
module("monitors") -> bench_monitors;
module("timers") -> bench_timers;
module("selective") -> bench_selective;
module("traffic") -> bench_traffic;
module("skynet") -> bench_skynet;
module("social") -> bench_social;
module("chameneos") -> savina_chameneos;
module("big") -> savina_big;
module("dictionary") -> savina_dictionary;
module("buffer") -> savina_buffer;
module("philosophers") -> savina_philosophers;
module("barber") -> savina_barber;
module("smokers") -> savina_smokers;
module("banking") -> savina_banking;
module("sieve") -> savina_sieve;
module("queens") -> savina_queens.

settings(["--count", N | Rest], Settings) -> settings(Rest, Settings#{count => list_to_integer(N)});
settings(["--workers", W | Rest], Settings) -> settings(Rest, Settings#{workers => list_to_integer(W)});
settings(["--set", Setting | Rest], Settings) ->
    [Key, Value] = string:split(Setting, "="),
    settings(Rest, Settings#{list_to_atom(Key) => number_or_word(Value)});
settings([], Settings) -> Settings.

number_or_word(Text) ->
    try list_to_integer(Text) catch error:badarg -> Text end.

print(Metrics, Checks) ->
    Fields = [[io_lib:format("\"~s\":", [Name]), decimal(Value)]
              || {Name, Value} <- Metrics, not is_list(Value)],
    %% A list has the quantiles of a distribution.
    Quantiles = [[io_lib:format("\"~s\":[", [Name]), lists:join(",", lists:map(fun decimal/1, Values)), "]"]
                 || {Name, Values} <- Metrics, is_list(Values)],
    Failures = [io_lib:format("\"~s: ~b instead of ~b\"", [What, Found, Due])
                || {What, Found, Due} <- Checks, Found =/= Due],
    io:format("{\"version\":\"OTP ~s\",\"workers\":~b,\"metrics\":{~s},\"failures\":[~s],\"quantiles\":{~s}}~n",
              [erlang:system_info(otp_release), erlang:system_info(schedulers_online),
               lists:join(",", Fields), lists:join(",", Failures), lists:join(",", Quantiles)]).

decimal(Value) -> io_lib:format("~.6f", [float(Value)]).
