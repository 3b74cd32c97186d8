%% `smokers`: an arbiter chooses a smoker at random, and the next one when this one has started to smoke.
-module(savina_smokers).
-export([run/2]).

run("smokers", #{count := Count, smokers := Smokers}) ->
    {{Started, Smoked, Others}, Wall} = savina:measure(fun() -> arbiter(Count, Smokers) end),
    {[{wall_s, Wall}],
     [{"rounds", Started, Count},
      {"cigarettes smoked", Smoked, Count},
      {"smokers that smoked more or less often than chosen", Others, 0}]}.

arbiter(Count, Size) ->
    Arbiter = self(),
    Smokers = list_to_tuple(savina:start(Size, fun(Index) -> smoke(Arbiter, Index, 0) end)),
    Chosen = counters:new(Size, []),
    Started = choose(Count, 1, Smokers, Chosen, 0),
    All = tuple_to_list(Smokers),
    lists:foreach(fun(Smoker) -> Smoker ! exit end, All),
    {Smoked, Others} = lists:foldl(fun(_, {Sum, Others}) ->
        receive
            {smoked, Index, Times} ->
                Other = case counters:get(Chosen, Index + 1) of Times -> 0; _ -> 1 end,
                {Sum + Times, Others + Other}
        end
    end, {0, 0}, All),
    {Started, Smoked, Others}.

choose(0, _, _, _, Started) -> Started;
choose(Left, Value, Smokers, Chosen, Started) ->
    Drawn = savina:next(Value),
    Index = Drawn rem tuple_size(Smokers),
    Busy = savina:next(Drawn),
    counters:add(Chosen, Index + 1, 1),
    element(Index + 1, Smokers) ! {smoke, Busy rem 1000 + 10},
    receive started -> choose(Left - 1, Busy, Smokers, Chosen, Started + 1) end.

smoke(Arbiter, Index, Times) ->
    receive
        {smoke, Busy} ->
            Arbiter ! started,
            savina:busy(Busy),
            smoke(Arbiter, Index, Times + 1);
        exit -> Arbiter ! {smoked, Index, Times}
    end.
