%% The clock, quantiles of latencies, and resident memory.
-module(bench_measure).
-export([clock/0, peak_resident_bytes/0, quantiles/2, resident_bytes/0]).

%% The probabilities of the quantiles that a run reports of each distribution.
-define(PROBABILITIES, [0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1]).

clock() -> erlang:monotonic_time(nanosecond).

%% The metric with the quantiles of a distribution; zeros if it is empty.
quantiles(Name, []) -> {Name, [0 || _ <- ?PROBABILITIES]};
quantiles(Name, Values) ->
    Sorted = list_to_tuple(lists:sort(Values)),
    At = fun(Probability) -> element(max(1, ceil(Probability * tuple_size(Sorted))), Sorted) end,
    {Name, lists:map(At, ?PROBABILITIES)}.

resident_bytes() -> kibibytes("/proc/self/smaps_rollup", "Rss:").

peak_resident_bytes() -> kibibytes("/proc/self/status", "VmHWM:").

kibibytes(Path, Field) ->
    {ok, Text} = file:read_file(Path),
    [Kibibytes] = [Number || Line <- string:lexemes(binary_to_list(Text), "\n"),
                             [Name, Number, "kB"] <- [string:lexemes(Line, " \t")],
                             Name =:= Field],
    list_to_integer(Kibibytes) * 1024.
