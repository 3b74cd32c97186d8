%% `pairs` and `ring`: messages to and fro, and a token through a ring.
-module(bench_relay).
-export([run/2]).
-import(bench_measure, [clock/0]).
-import(bench_receiver, [note/4, share/3, spawn_receiver/1]).

run("pairs", #{count := Count, pairs := Pairs, message := Kind}) ->
    First = case Kind of "bytes" -> <<0:512>>; _ -> 0 end,
    {Elapsed, Checks} = relay(Count, Pairs, 2, First),
    {[{message_ns, Elapsed / Count}], Checks};

run("ring", #{count := Count, processes := Size}) ->
    {Elapsed, Checks} = relay(Count, 1, Size, 0),
    {[{wall_s, Elapsed / 1.0e9}, {hop_ns, Elapsed / Count}], Checks}.

%% Passes Count messages through rings of processes, each ring its share. A process adds one to the
%% number that it receives, and sends it on; a binary of 64 bytes begins with the number.
relay(Count, Rings, Size, Message) ->
    Misplaced = atomics:new(1, [{signed, false}]),
    Firsts = [{start_ring(Size, share(Count, Ring, Rings), Misplaced), share(Count, Ring, Rings)}
              || Ring <- lists:seq(0, Rings - 1)],
    %% A ring without a share of the messages does not begin.
    Begun = [First || {First, Messages} <- Firsts, Messages > 0],
    Start = clock(),
    lists:foreach(fun(First) -> First ! Message end, Begun),
    {Finished, Passed} = await_rings(length(Begun), 0, 0),
    Elapsed = clock() - Start,
    {Elapsed,
     [{"rings that finished", Finished, length(Begun)},
      {"messages passed on", Passed, Count},
      {"messages received in the wrong order", atomics:get(Misplaced, 1), 0}]}.

start_ring(Size, Messages, Misplaced) ->
    Driver = self(),
    Links = [spawn_receiver(fun() ->
                 receive {next, Next} -> pass(Next, Place, Size, Messages, Driver, Misplaced) end
             end)
             || Place <- lists:seq(0, Size - 1)],
    First = hd(Links),
    lists:foreach(fun({Link, Next}) -> Link ! {next, Next} end,
                  lists:zip(Links, tl(Links) ++ [First])),
    First.

pass(Next, Due, Size, Messages, Driver, Misplaced) ->
    receive
        Value when is_integer(Value) ->
            note(Value, Due, Misplaced, 1),
            case Value + 1 of
                Messages -> Driver ! {finished, Messages};
                Sent -> Next ! Sent
            end,
            pass(Next, Value + Size, Size, Messages, Driver, Misplaced);
        <<Value:64, _/binary>> ->
            note(Value, Due, Misplaced, 1),
            case Value + 1 of
                Messages -> Driver ! {finished, Messages};
                Sent -> Next ! <<Sent:64, 0:448>>
            end,
            pass(Next, Value + Size, Size, Messages, Driver, Misplaced)
    end.

await_rings(Begun, Begun, Passed) -> {Begun, Passed};
await_rings(Begun, Finished, Passed) ->
    receive
        {finished, Messages} -> await_rings(Begun, Finished + 1, Passed + Messages)
    after 300_000 -> {Finished, Passed}
    end.
