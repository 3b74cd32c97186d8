%% `send`: a process, or several, send numbers to a receiver, which counts them. A request for the sum from
%% the driver could overtake them: Erlang orders the signals of one sender only, and queues off the heap make
%% use of that.
-module(bench_send).
-export([run/2]).
-import(bench_measure, [clock/0]).
-import(bench_receiver, [spawn_receiver/1]).

run("send", #{count := Count, senders := Senders}) ->
    Driver = self(),
    Receiver = spawn_receiver(fun() -> add(Count, 0, Driver) end),
    Share = fun(Sender) -> Count * Sender div Senders end,
    Start = clock(),
    [spawn_link(fun() -> send_all(Receiver, Share(Sender), Share(Sender + 1)),
                         Driver ! {sent, clock()} end)
     || Sender <- lists:seq(0, Senders - 1)],
    LastDone = lists:max([receive {sent, Done} -> Done end || _ <- lists:seq(1, Senders)]),
    Sum = receive {sum, Received} -> Received after 300_000 -> 0 end,
    Delivered = clock(),
    {[{send_ns, (LastDone - Start) / Count}, {delivered_ns, (Delivered - Start) / Count}],
     [{"the sum received", Sum, Count * (Count - 1) div 2}]}.

send_all(_, End, End) -> ok;
send_all(Receiver, Value, End) ->
    Receiver ! Value,
    send_all(Receiver, Value + 1, End).

add(0, Sum, Driver) -> Driver ! {sum, Sum};
add(Left, Sum, Driver) -> receive Value -> add(Left - 1, Sum + Value, Driver) end.
