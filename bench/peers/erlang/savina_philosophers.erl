%% `philosophers`: an arbiter owns the forks; a philosopher asks for two until it gets them, eats, and asks again.
-module(savina_philosophers).
-export([run/2]).

run("philosophers", #{count := Count, philosophers := Philosophers}) ->
    {{Meals, Stolen, Held}, Wall} = savina:measure(fun() -> table(Count, Philosophers) end),
    {[{wall_s, Wall}],
     [{"meals eaten", Meals, Count * Philosophers},
      {"forks that were granted while another had them", Stolen, 0},
      {"forks held at the end", Held, 0}]}.

table(Count, Philosophers) ->
    Arbiter = self(),
    savina:start(Philosophers, fun(Index) -> ask(Arbiter, Index, Count) end),
    arbitrate(list_to_tuple(lists:duplicate(Philosophers, free)), Philosophers, 0, 0).

%% A fork is free or has its holder's index. A fork that was granted to a second philosopher no longer has
%% the first when this one puts it down.
arbitrate(Forks, 0, Meals, Stolen) ->
    {Meals, Stolen, length([Fork || Fork <- tuple_to_list(Forks), Fork =/= free])};
arbitrate(Forks, Left, Meals, Stolen) ->
    receive
        {hungry, Philosopher, Index} ->
            {L, R} = places(Index, Forks),
            case {element(L, Forks), element(R, Forks)} of
                {free, free} ->
                    Philosopher ! eat,
                    arbitrate(setelement(L, setelement(R, Forks, Index), Index), Left, Meals, Stolen);
                _ ->
                    Philosopher ! denied,
                    arbitrate(Forks, Left, Meals, Stolen)
            end;
        {done, Index} ->
            {L, R} = places(Index, Forks),
            Lost = length([Place || Place <- [L, R], element(Place, Forks) =/= Index]),
            arbitrate(setelement(L, setelement(R, Forks, free), free), Left, Meals + 1, Stolen + Lost);
        exit -> arbitrate(Forks, Left - 1, Meals, Stolen)
    end.

places(Index, Forks) -> {Index + 1, (Index + 1) rem tuple_size(Forks) + 1}.

ask(Arbiter, _, 0) -> Arbiter ! exit;
ask(Arbiter, Index, Left) ->
    Arbiter ! {hungry, self(), Index},
    receive
        eat ->
            Arbiter ! {done, Index},
            ask(Arbiter, Index, Left - 1);
        denied -> ask(Arbiter, Index, Left)
    end.
