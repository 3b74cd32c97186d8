%% `sieve`: a producer sends odd numbers to a chain of filters, each of which has a block of primes.
-module(savina_sieve).
-export([run/2]).

run("sieve", #{count := Limit, block := Block}) ->
    {{Primes, Sum}, Wall} = savina:measure(fun() -> produce(Limit, Block) end),
    {Due, DueSum} = sieve(max(3, Limit)),
    {[{wall_s, Wall}], [{"primes", Primes, Due}, {"their sum", Sum, DueSum}]}.

produce(Limit, Block) ->
    Producer = self(),
    First = spawn_link(fun() -> filter(Producer, Block, [2], 1) end),
    send_odd(3, Limit, First),
    First ! {exit, 0, 0},
    receive {primes, Primes, Sum} -> {Primes, Sum} end.

send_odd(Number, Limit, _) when Number >= Limit -> ok;
send_odd(Number, Limit, First) ->
    First ! Number,
    send_odd(Number + 2, Limit, First).

%% Adds primes to the block until it is full, and the next prime to a filter of its own.
filter(Producer, Block, Primes, Size) ->
    receive
        Number when is_integer(Number) ->
            case has_divisor(Number, Primes) of
                true -> filter(Producer, Block, Primes, Size);
                false when Size < Block -> filter(Producer, Block, Primes ++ [Number], Size + 1);
                false ->
                    Next = spawn_link(fun() -> filter(Producer, Block, [Number], 1) end),
                    pass(Primes, Size, Next)
            end;
        {exit, Before, Sum} ->
            Producer ! {primes, Before + Size, Sum + lists:sum(Primes)}
    end.

pass(Primes, Size, Next) ->
    receive
        Number when is_integer(Number) ->
            case has_divisor(Number, Primes) of
                true -> ok;
                false -> Next ! Number
            end,
            pass(Primes, Size, Next);
        {exit, Before, Sum} -> Next ! {exit, Before + Size, Sum + lists:sum(Primes)}
    end.

has_divisor(_, []) -> false;
has_divisor(Number, [Prime | _]) when Number rem Prime =:= 0 -> true;
has_divisor(Number, [_ | Primes]) -> has_divisor(Number, Primes).

%% The number of the primes below a limit, and their sum.
sieve(Limit) ->
    Composite = counters:new(Limit, []),
    [counters:put(Composite, Multiple, 1)
     || Number <- lists:seq(2, trunc(math:sqrt(Limit))), counters:get(Composite, Number) =:= 0,
        Multiple <- lists:seq(Number * Number, Limit - 1, Number)],
    Primes = [Number || Number <- lists:seq(2, Limit - 1), counters:get(Composite, Number) =:= 0],
    {length(Primes), lists:sum(Primes)}.
