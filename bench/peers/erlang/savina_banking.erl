%% `banking`: a teller sends transfers to accounts, each of which has another account credited and waits for
%% its acknowledgement.
-module(savina_banking).
-export([run/2]).

-define(BALANCE, 1_000_000).

run("banking", #{count := Count, accounts := Given}) ->
    Accounts = max(2, Given),
    {{Completed, Balances, Misplaced}, Wall} = savina:measure(fun() -> teller(Count, Accounts) end),
    {[{wall_s, Wall}],
     [{"transactions completed", Completed, Count},
      {"the sum of the balances", Balances, Accounts * ?BALANCE},
      {"transactions completed before an earlier one of their account", Misplaced, 0}]}.

teller(Count, Size) ->
    Teller = self(),
    All = savina:start(Size, fun(_) -> account(Teller, ?BALANCE) end),
    send_all(Count, 1, list_to_tuple(All)),
    {Completed, Misplaced} = await_all(Count, counters:new(Size, []), 0, 0),
    lists:foreach(fun(Account) -> Account ! stop end, All),
    {Completed, lists:sum([receive {stopped, Balance} -> Balance end || _ <- All]), Misplaced}.

%% The destination is greater than the source, so that no accounts wait for each other in a circle.
send_all(0, _, _) -> ok;
send_all(Left, Value, Accounts) ->
    Size = tuple_size(Accounts),
    First = savina:next(Value),
    Second = savina:next(First),
    Amount = savina:next(Second),
    Source = First rem max(1, Size div 10 * 8),
    Destination = Source + max(1, Second rem (Size - Source)),
    Transaction = {Left, Source + 1, Amount rem 1000 + 1},
    element(Source + 1, Accounts) ! {transfer, element(Destination + 1, Accounts), Transaction},
    send_all(Left - 1, Amount, Accounts).

%% The numbers of the transactions fall. An account with two of them open at once could complete the later first.
await_all(0, _, Completed, Misplaced) -> {Completed, Misplaced};
await_all(Left, Last, Completed, Misplaced) ->
    receive
        {completed, {Number, Source, _}} ->
            Before = counters:get(Last, Source),
            counters:put(Last, Source, Number),
            Wrong = case Before =:= 0 orelse Number < Before of true -> 0; false -> 1 end,
            await_all(Left - 1, Last, Completed + 1, Misplaced + Wrong)
    end.

%% While an account waits for an acknowledgement, which has the reference of its credit, other messages stay in
%% its queue.
account(Teller, Balance) ->
    receive
        {transfer, Destination, {_, _, Amount} = Transaction} ->
            Reference = make_ref(),
            Destination ! {credit, self(), Reference, Amount},
            receive {acknowledged, Reference} -> ok end,
            Teller ! {completed, Transaction},
            account(Teller, Balance - Amount);
        {credit, Source, Reference, Amount} ->
            Source ! {acknowledged, Reference},
            account(Teller, Balance + Amount);
        stop -> Teller ! {stopped, Balance}
    end.
