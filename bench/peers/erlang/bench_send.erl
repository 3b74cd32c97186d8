%% `send`: a process, or several, send numbers to a receiver.
-module(bench_send).
-export([run/2]).
-import(bench_measure, [clock/0]).
-import(bench_receiver, [spawn_receiver/1]).

run("send", #{count := Count, senders := Senders}) ->
    Driver = self(),
    Receiver = spawn_receiver(fun() -> add(0) end),
    Share = fun(Sender) -> Count * Sender div Senders end,
    Start = clock(),
    [spawn_link(fun() -> send_all(Receiver, Share(Sender), Share(Sender + 1)),
                         Driver ! {sent, clock()} end)
     || Sender <- lists:seq(0, Senders - 1)],
    LastDone = lists:max([receive {sent, Done} -> Done end || _ <- lists:seq(1, Senders)]),
    Receiver ! {sum, Driver},
    Sum = receive {sum, Received} -> Received end,
    Delivered = clock(),
    {[{send_ns, (LastDone - Start) / Count}, {delivered_ns, (Delivered - Start) / Count}],
     [{"the sum received", Sum, Count * (Count - 1) div 2}]}.

send_all(_, End, End) -> ok;
send_all(Receiver, Value, End) ->
    Receiver ! Value,
    send_all(Receiver, Value + 1, End).

add(Sum) ->
    receive
        Value when is_integer(Value) -> add(Sum + Value);
        {sum, From} -> From ! {sum, Sum}
    end.
