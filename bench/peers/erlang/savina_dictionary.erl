%% `dictionary`: clients read and write a map that one process holds.
-module(savina_dictionary).
-export([run/2]).

run("dictionary", #{count := Count, clients := Clients, writes := Percent}) ->
    {{Wrong, Keys, Written, Handled, WritesHandled, Size}, Wall} =
        savina:measure(fun() -> master(Count, Clients, Percent) end),
    {[{wall_s, Wall}],
     [{"requests handled", Handled, Count * Clients},
      {"wrong answers", Wrong, 0},
      {"writes handled", WritesHandled, Written},
      {"entries of the dictionary", Size, Keys}]}.

master(Count, Clients, Percent) ->
    Master = self(),
    Dictionary = spawn_link(fun() -> dictionary(#{}, 0, 0) end),
    savina:start(Clients, fun(Index) ->
        Master ! {done, ask(Count, Index, Index + 1, {Dictionary, Percent}, #{}, 0, 0)}
    end),
    {Wrong, Keys, Written} = lists:foldl(fun(_, {W, K, N}) ->
        receive {done, {Wrong, Keys, Written}} -> {W + Wrong, K + Keys, N + Written} end
    end, {0, 0, 0}, lists:seq(1, Clients)),
    Dictionary ! {stop, Master},
    receive
        {stopped, Handled, WritesHandled, Size} -> {Wrong, Keys, Written, Handled, WritesHandled, Size}
    end.

dictionary(Map, Handled, Writes) ->
    receive
        {write, From, Key, Value} ->
            From ! {result, Value},
            dictionary(Map#{Key => Value}, Handled + 1, Writes + 1);
        {read, From, Key} ->
            From ! {result, maps:get(Key, Map, none)},
            dictionary(Map, Handled + 1, Writes);
        {stop, Master} -> Master ! {stopped, Handled, Writes, map_size(Map)}
    end.

%% A client has at most 512 keys of its own, and keeps what it wrote last to each: the number of requests left.
ask(0, _, _, _, Own, Wrong, Written) -> {Wrong, map_size(Own), Written};
ask(Left, Client, Value, {Dictionary, Percent} = Where, Own, Wrong, Written) ->
    Drawn = savina:next(Value),
    Place = savina:next(Drawn),
    Key = Client * 65536 + Place bsr 7,
    case Drawn rem 100 < Percent of
        true ->
            Dictionary ! {write, self(), Key, Left},
            ask(Left - 1, Client, Place, Where, Own#{Key => Left}, Wrong + unlike(Left), Written + 1);
        false ->
            Dictionary ! {read, self(), Key},
            Due = maps:get(Key, Own, none),
            ask(Left - 1, Client, Place, Where, Own, Wrong + unlike(Due), Written)
    end.

unlike(Due) ->
    receive
        {result, Due} -> 0;
        {result, _} -> 1
    end.
