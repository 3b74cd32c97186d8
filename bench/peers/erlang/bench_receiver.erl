%% Processes that receive, and the shares and the order of their messages.
-module(bench_receiver).
-export([note/4, share/3, spawn_receiver/1]).

%% Starts a receiver, in the sense of src/workloads/receiver.rs. In the row `erlang-tuned` its queue is
%% off its heap.
spawn_receiver(Receive) ->
    Where = case os:getenv("MESSAGE_QUEUE_DATA") of "off_heap" -> off_heap; _ -> on_heap end,
    spawn_opt(Receive, [link, {message_queue_data, Where}]).

%% The number of units that a part gets of Count; two parts differ by at most one.
share(Count, Part, Parts) -> Count * (Part + 1) div Parts - Count * Part div Parts.

%% Counts a number that is received in the wrong order.
note(Due, Due, _, _) -> ok;
note(_, _, Tally, Index) -> atomics:add(Tally, Index, 1).
