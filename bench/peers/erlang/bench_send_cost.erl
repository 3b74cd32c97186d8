%% `send-cost`: the loops of an article on Elixir, over local calls and over sends.
-module(bench_send_cost).
-export([run/2]).
-import(bench_measure, [clock/0]).
-import(bench_receiver, [spawn_receiver/1]).

run("send-cost", #{count := Longest, payload := Payload, depth := Depth}) ->
    Lengths = [Length || Length <- [1, 500, 3000, 10_000], Length < Longest] ++ [Longest],
    [{Calls, Local, Made} | _] = lists:foldl(fun(Length, Done) ->
        make_loop(Length, 3, fun call_in_loop/1, Done)
    end, [call_in_loop(10)], Lengths),
    Receiver = spawn_receiver(fun() -> account(0, 0) end),
    Content = content(Payload),
    Send = fun(Messages, Waiting) -> send_rounds(Receiver, Payload, Content, Waiting, Messages) end,
    Loops = lists:foldl(fun(Length, Done) ->
        Waiting = case Length of Longest -> Depth; _ -> 0 end,
        make_loop(Length, 3, fun(Messages) -> Send(Messages, Waiting) end, Done)
    end, [Send(10, 0)], Lengths),
    [{Messages, Sent, {Delivered, _}} | _] = Loops,
    {Received, Sum, DueCount, DueSum} = lists:foldl(fun({_, _, {_, Sums}}, All) ->
        add_sums(Sums, All)
    end, {0, 0, 0, 0}, Loops),
    {[{local_ns, Local / Calls}, {send_ns, Sent / Messages}, {delivered_ns, Delivered / Messages}],
     [{"local calls", Made, Calls},
      {"messages received", Received, DueCount},
      {"the sum received", Sum, DueSum}]}.

%% Makes a loop of some milliseconds, with as many calls as the loop before tells; and again, some times at
%% most, if it took less than half of that.
make_loop(Milliseconds, Attempts, Loop, [{Before, TookBefore, _} | _] = Done) ->
    Length = Milliseconds * 1_000_000,
    {_, Took, _} = Made = Loop(max(1, Length * Before div max(1, TookBefore))),
    case Took * 2 >= Length orelse Attempts =:= 1 of
        true -> [Made | Done];
        false -> make_loop(Milliseconds, Attempts - 1, Loop, [Made | Done])
    end.

call_in_loop(Calls) ->
    Start = clock(),
    Made = call_local(Calls, 0),
    {Calls, clock() - Start, Made}.

%% The source's local_fun, which also counts its calls.
call_local(0, Made) -> Made;
call_local(Left, Made) when Left > 0 -> call_local(Left - 1, Made + 1).

%% The bytes of each message but the first and the last.
content(Payload) when Payload < 3 -> <<>>;
content(Payload) -> binary:copy(<<0>>, Payload - 2).

%% Sends messages in rounds of at most 64 MiB, each to a mailbox in which Depth messages wait.
send_rounds(Receiver, Payload, Content, Depth, Messages) ->
    Round = max(1, (64 bsl 20) div (Payload + 64)),
    {Sent, Delivered, Sums} =
        send_rounds(Receiver, Payload, Content, Depth, Round, Messages, {0, 0, {0, 0, 0, 0}}),
    {Messages, Sent, {Delivered, Sums}}.

send_rounds(_, _, _, _, _, 0, Done) -> Done;
send_rounds(Receiver, Payload, Content, Depth, Round, Left, {Sent, Delivered, Sums}) ->
    Now = min(Left, Round),
    queue(Receiver, Payload, Content, Depth),
    Start = clock(),
    send_numbers(Receiver, Payload, Content, 0, Now),
    SentAt = clock(),
    Receiver ! {confirm, self()},
    {Count, Sum} = receive {confirmed, C, S} -> {C, S} after 300_000 -> {0, 0} end,
    End = clock(),
    Due = {Count, Sum, Now + Depth, due_sum(Payload, Now) + due_sum(Payload, Depth)},
    Done = {Sent + SentAt - Start, Delivered + End - Start, add_sums(Due, Sums)},
    Next = case Count of 0 -> 0; _ -> Left - Now end,
    send_rounds(Receiver, Payload, Content, Depth, Round, Next, Done).

%% Holds the receiver until so many messages wait in its mailbox.
queue(_, _, _, 0) -> ok;
queue(Receiver, Payload, Content, Depth) ->
    Receiver ! hold,
    send_numbers(Receiver, Payload, Content, 0, Depth),
    Receiver ! go.

add_sums({A, B, C, D}, {E, F, G, H}) -> {A + E, B + F, C + G, D + H}.

due_sum(0, Count) -> Count * (Count - 1) div 2;
due_sum(Payload, Count) ->
    Rest = Count rem 256,
    Count * Payload + 2 * (Count div 256 * 32640 + Rest * (Rest - 1) div 2).

%% The source's remote_fun. Each message is a number, or a new binary, into which the content is copied.
send_numbers(_, _, _, Count, Count) -> ok;
send_numbers(Receiver, 0, Content, Number, Count) ->
    Receiver ! Number,
    send_numbers(Receiver, 0, Content, Number + 1, Count);
send_numbers(Receiver, 1, Content, Number, Count) ->
    Receiver ! <<Number>>,
    send_numbers(Receiver, 1, Content, Number + 1, Count);
send_numbers(Receiver, Payload, Content, Number, Count) ->
    Receiver ! <<Number, Content/binary, Number>>,
    send_numbers(Receiver, Payload, Content, Number + 1, Count).

account(Count, Sum) ->
    receive
        Number when is_integer(Number) -> account(Count + 1, Sum + Number);
        Bytes when is_binary(Bytes) ->
            account(Count + 1, Sum + byte_size(Bytes) + binary:first(Bytes) + binary:last(Bytes));
        hold -> receive go -> account(Count, Sum) end;
        {confirm, From} ->
            From ! {confirmed, Count, Sum},
            account(0, 0)
    end.
