%% `buffer`: a manager takes items from producers and gives them to consumers; it holds few at a time.
-module(savina_buffer).
-export([run/2]).

-record(buffer, {full, all, left, most = 0, held = 0,
                 items = queue:new(), consumers, producers = queue:new()}).

run("buffer", #{count := Count, producers := Producers} = Settings) ->
    #{capacity := Capacity, work := Work} = Settings,
    {{Used, Sum, Most}, Wall} = savina:measure(fun() -> manager(Settings) end),
    Due = lists:sum([made(Index + 1, Work, Count, 0) || Index <- lists:seq(0, Producers - 1)]),
    {[{wall_s, Wall}],
     [{"items consumed", Used, Count * Producers},
      {"their sum", Sum, Due},
      {"items beyond the capacity", max(0, Most - max(Capacity, Producers + 1)), 0}]}.

%% The sum of the items of a producer.
made(_, _, 0, Sum) -> Sum;
made(Item, Work, Left, Sum) ->
    Next = savina:advance(Item, Work),
    made(Next, Work, Left - 1, Sum + Next).

manager(#{count := Count, producers := Producers, consumers := Consumers} = Settings) ->
    #{capacity := Capacity, work := Work} = Settings,
    Manager = self(),
    All = savina:start(Consumers, fun(Index) -> consume(Manager, Work, Index + 1, 0, 0) end),
    Makers = savina:start(Producers, fun(Index) -> produce(Manager, Work, Index + 1, Count) end),
    lists:foreach(fun(Producer) -> Producer ! produce end, Makers),
    %% Each producer may have an item under way, for which there has to be room.
    #buffer{most = Most} =
        manage(#buffer{full = max(1, Capacity - Producers), all = Consumers, left = Producers,
                       consumers = queue:from_list(All)}),
    lists:foreach(fun(Consumer) -> Consumer ! exit end, All),
    {Used, Sum} = lists:foldl(fun(_, {N, S}) ->
        receive {consumed, Items, ItemSum} -> {N + Items, S + ItemSum} end
    end, {0, 0}, All),
    {Used, Sum, Most}.

%% Passes items on until the producers have ended and all consumers are idle.
manage(#buffer{left = 0, held = 0, all = All, consumers = Idle} = Buffer) ->
    case queue:len(Idle) of
        All -> Buffer;
        _ -> take(Buffer)
    end;
manage(Buffer) -> take(Buffer).

take(#buffer{held = Held, items = Items, consumers = Idle} = Buffer) ->
    receive
        {item, Producer, Item} ->
            manage(release(Producer, case queue:out(Idle) of
                {{value, Consumer}, Rest} ->
                    Consumer ! {item, Item},
                    Buffer#buffer{consumers = Rest};
                {empty, _} ->
                    Buffer#buffer{items = queue:in(Item, Items), held = Held + 1,
                                  most = max(Buffer#buffer.most, Held + 1)}
            end));
        {ready, Consumer} ->
            manage(case queue:out(Items) of
                {{value, Item}, Rest} ->
                    Consumer ! {item, Item},
                    wake(Buffer#buffer{items = Rest, held = Held - 1});
                {empty, _} -> Buffer#buffer{consumers = queue:in(Consumer, Idle)}
            end);
        over -> manage(Buffer#buffer{left = Buffer#buffer.left - 1})
    end.

%% Asks for another item, or lets the producer wait if the buffer counts as full.
release(Producer, #buffer{held = Held, full = Full, producers = Waiting} = Buffer) when Held >= Full ->
    Buffer#buffer{producers = queue:in(Producer, Waiting)};
release(Producer, Buffer) ->
    Producer ! produce,
    Buffer.

wake(#buffer{producers = Waiting} = Buffer) ->
    case queue:out(Waiting) of
        {{value, Producer}, Rest} ->
            Producer ! produce,
            Buffer#buffer{producers = Rest};
        {empty, _} -> Buffer
    end.

produce(Manager, Work, Item, Left) ->
    receive
        produce when Left =:= 0 -> Manager ! over;
        produce ->
            Made = savina:advance(Item, Work),
            Manager ! {item, self(), Made},
            produce(Manager, Work, Made, Left - 1)
    end.

consume(Manager, Work, Value, Items, Sum) ->
    receive
        {item, Item} ->
            Used = savina:advance(Value + Item, Work),
            Manager ! {ready, self()},
            consume(Manager, Work, Used, Items + 1, Sum + Item);
        exit -> Manager ! {consumed, Items, Sum}
    end.
