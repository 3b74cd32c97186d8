%% The clock, percentiles of latencies, and resident memory.
-module(bench_measure).
-export([clock/0, peak_resident_bytes/0, percentiles/1, resident_bytes/0]).

clock() -> erlang:monotonic_time(nanosecond).

percentiles(Latencies) ->
    Sorted = list_to_tuple(lists:sort(Latencies)),
    At = fun(Quantile) -> element(max(1, ceil(Quantile * tuple_size(Sorted))), Sorted) end,
    [{p50_ns, At(0.5)}, {p99_ns, At(0.99)}].

resident_bytes() -> kibibytes("/proc/self/smaps_rollup", "Rss:").

peak_resident_bytes() -> kibibytes("/proc/self/status", "VmHWM:").

kibibytes(Path, Field) ->
    {ok, Text} = file:read_file(Path),
    [Kibibytes] = [Number || Line <- string:lexemes(binary_to_list(Text), "\n"),
                             [Name, Number, "kB"] <- [string:lexemes(Line, " \t")],
                             Name =:= Field],
    list_to_integer(Kibibytes) * 1024.
