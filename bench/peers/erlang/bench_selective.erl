%% `selective`: a process waits for answers while items wait. A question has a reference, so the emulator looks for its
%% answer among the messages that came after the reference was made.
-module(bench_selective).
-export([run/2]).
-import(bench_measure, [clock/0]).
-import(bench_receiver, [spawn_receiver/1]).

run("selective", #{count := Count, depth := Depth}) ->
    Driver = self(),
    Server = spawn_link(fun answer/0),
    Asker = spawn_receiver(fun() ->
        receive go -> ok end,
        Start = clock(),
        Sum = ask(0, Count, Server, 0),
        Asked = clock() - Start,
        Begin = clock(),
        Misplaced = items(0, Depth, 0),
        Driver ! {done, Asked, clock() - Begin, Sum, Misplaced}
    end),
    lists:foreach(fun(Number) -> Asker ! {item, Number} end, lists:seq(0, Depth - 1)),
    Asker ! go,
    receive
        {done, Asked, Received, Sum, Misplaced} ->
            {[{round_trip_ns, Asked / Count}, {item_ns, Received / Depth}],
             [{"the sum of the answers", Sum, Count * (Count + 1) div 2},
              {"messages received in the wrong order", Misplaced, 0}]}
    end.

answer() ->
    receive
        {ask, From, Reference, Value} ->
            From ! {Reference, Value + 1},
            answer()
    end.

ask(Count, Count, _, Sum) -> Sum;
ask(Value, Count, Server, Sum) ->
    Reference = make_ref(),
    Server ! {ask, self(), Reference, Value},
    receive {Reference, Answer} -> ask(Value + 1, Count, Server, Sum + Answer) end.

items(Depth, Depth, Misplaced) -> Misplaced;
items(Due, Depth, Misplaced) ->
    receive
        {item, Due} -> items(Due + 1, Depth, Misplaced);
        {item, _} -> items(Due + 1, Depth, Misplaced + 1)
    end.
