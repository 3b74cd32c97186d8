%% Processes that reply to a call with the number that follows, and calls of them.
-module(bench_service).
-export([call/2, reply/0, right/2]).

reply() ->
    receive
        {call, From, Reference, Value} ->
            From ! {Reference, Value + 1},
            reply()
    end.

%% Returns 1 if the reply is right, otherwise 0. The reference ties the reply to its call, as in
%% gen_server.
call(Callee, Value) ->
    Reference = make_ref(),
    Callee ! {call, self(), Reference, Value},
    receive {Reference, Reply} -> right(Reply, Value + 1) end.

right(Reply, Reply) -> 1;
right(_, _) -> 0.
