%% `big`: each actor sends pings to random others, one at a time, and answers the pings of others.
-module(savina_big).
-export([run/2]).

run("big", #{count := Count, actors := Actors}) ->
    {{Pings, Pongs, Misplaced}, Wall} = savina:measure(fun() -> sink(Count, Actors) end),
    {[{wall_s, Wall}],
     [{"pings received", Pings, Count * Actors},
      {"pongs received", Pongs, Count * Actors},
      {"pongs without their ping", Misplaced, 0}]}.

sink(Count, Size) ->
    Sink = self(),
    Actors = savina:start(Size, fun(Index) ->
        receive
            {neighbours, Neighbours} ->
                ping(#{index => Index, all => Neighbours, sink => Sink}, Index + 1, Count, {0, 0, 0})
        end
    end),
    Neighbours = list_to_tuple(Actors),
    lists:foreach(fun(Actor) -> Actor ! {neighbours, Neighbours} end, Actors),
    lists:foreach(fun(_) -> receive done -> ok end end, Actors),
    lists:foreach(fun(Actor) -> Actor ! exit end, Actors),
    lists:foldl(fun(_, {Pings, Pongs, Wrong}) ->
        receive {report, {P, Q, W}} -> {Pings + P, Pongs + Q, Wrong + W} end
    end, {0, 0, 0}, Actors).

ping(#{sink := Sink} = Own, _, 0, Counts) ->
    Sink ! done,
    answer(Own, Counts);
ping(#{index := Index, all := All} = Own, Value, Left, Counts) ->
    Next = savina:next(Value),
    Size = tuple_size(All),
    %% A random other actor; if there is no other, this one.
    Step = 1 + Next rem max(1, Size - 1),
    element((Index + Step) rem Size + 1, All) ! {ping, self(), Left},
    ping(Own, Next, Left - 1, await_pong(Left, Counts)).

await_pong(Number, {Pings, Pongs, Wrong}) ->
    receive
        {ping, From, Theirs} ->
            From ! {pong, Theirs},
            await_pong(Number, {Pings + 1, Pongs, Wrong});
        {pong, Number} -> {Pings, Pongs + 1, Wrong};
        {pong, _} -> {Pings, Pongs + 1, Wrong + 1}
    end.

answer(#{sink := Sink} = Own, {Pings, Pongs, Wrong} = Counts) ->
    receive
        {ping, From, Number} ->
            From ! {pong, Number},
            answer(Own, {Pings + 1, Pongs, Wrong});
        exit -> Sink ! {report, Counts}
    end.
