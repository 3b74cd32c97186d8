%% `chameneos`: a mall pairs creatures that ask for a meeting; both take the colour that the meeting makes.
-module(savina_chameneos).
-export([run/2]).

run("chameneos", #{count := Count, creatures := Creatures}) ->
    {{Meetings, Selves, Miscounted, Miscoloured}, Wall} =
        savina:measure(fun() -> open(Count, Creatures) end),
    {[{wall_s, Wall}],
     [{"meetings of all creatures", Meetings, 2 * Count},
      {"creatures that met themselves", Selves, 0},
      {"creatures whose count is not the mall's", Miscounted, 0},
      {"colours that no meeting made", Miscoloured, 0}]}.

%% The mall has the colour and the number of meetings of each creature itself.
open(Count, Creatures) ->
    Mall = self(),
    Colours = counters:new(Creatures, []),
    [counters:put(Colours, Index + 1, Index rem 3) || Index <- lists:seq(0, Creatures - 1)],
    Met = counters:new(Creatures, []),
    savina:start(Creatures, fun(Index) -> creature(Mall, Index, Index rem 3, 0, 0) end),
    Miscoloured = pair(Count, Colours, Met, 0),
    close(Creatures, Colours, Met, {0, 0, 0, Miscoloured}).

pair(0, _, _, Miscoloured) -> Miscoloured;
pair(Left, Colours, Met, Miscoloured) ->
    {One, I, C} = receive {meet, P, Index, Colour} -> {P, Index, Colour} end,
    {Other, J, D} = receive {meet, P1, Index1, Colour1} -> {P1, Index1, Colour1} end,
    One ! {meet, Other, J, D},
    Wrong = wrong(C, counters:get(Colours, I + 1)) + wrong(D, counters:get(Colours, J + 1)),
    Made = complement(C, D),
    [begin counters:put(Colours, At + 1, Made), counters:add(Met, At + 1, 1) end || At <- [I, J]],
    pair(Left - 1, Colours, Met, Miscoloured + Wrong).

%% Answers the requests that are left, and adds up the creatures' reports.
close(0, _, _, Report) -> Report;
close(Left, Colours, Met, {Meetings, Selves, Miscounted, Miscoloured} = Report) ->
    receive
        {meet, Creature, Index, Colour} ->
            Creature ! over,
            Wrong = wrong(Colour, counters:get(Colours, Index + 1)),
            close(Left, Colours, Met, setelement(4, Report, Miscoloured + Wrong));
        {report, Index, Own, OwnSelves} ->
            Wrong = wrong(Own, counters:get(Met, Index + 1)),
            Sums = {Meetings + Own, Selves + OwnSelves, Miscounted + Wrong, Miscoloured},
            close(Left - 1, Colours, Met, Sums)
    end.

creature(Mall, Index, Colour, Meetings, Selves) ->
    Mall ! {meet, self(), Index, Colour},
    receive
        {meet, Other, OtherIndex, OtherColour} ->
            Made = complement(Colour, OtherColour),
            Other ! {change, Index, Made},
            creature(Mall, Index, Made, Meetings + 1, Selves + 1 - wrong(OtherIndex, Index));
        {change, OtherIndex, Made} ->
            creature(Mall, Index, Made, Meetings + 1, Selves + 1 - wrong(OtherIndex, Index));
        over -> Mall ! {report, Index, Meetings, Selves}
    end.

%% The colour that a meeting makes.
complement(Colour, Colour) -> Colour;
complement(One, Other) -> 3 - One - Other.

wrong(Due, Due) -> 0;
wrong(_, _) -> 1.
