%% `queens`: solvers place queens; they send boards with few queens back to the master, and solve the others.
-module(savina_queens).
-export([run/2]).

run("queens", #{count := Board, solvers := Solvers, threshold := Threshold}) ->
    {Solutions, Wall} = savina:measure(fun() -> master(Board, Solvers, Threshold) end),
    {[{wall_s, Wall}], [{"solutions", Solutions, count(Board, 0, 0, 0)}]}.

master(Board, Size, Threshold) ->
    Master = self(),
    Solvers = savina:start(Size, fun(_) -> solver(Master, Board, Threshold) end),
    hd(Solvers) ! {work, [], 0},
    Solutions = distribute(tl(Solvers), Solvers, 1, 0),
    lists:foreach(fun(Solver) -> Solver ! stop end, Solvers),
    Solutions.

%% Gives boards to the solvers in turn, until all that were sent have been worked on.
distribute(_, _, 0, Solutions) -> Solutions;
distribute([], Solvers, Open, Solutions) -> distribute(Solvers, Solvers, Open, Solutions);
distribute([Solver | Rest] = Turn, Solvers, Open, Solutions) ->
    receive
        {work, _, _} = Work ->
            Solver ! Work,
            distribute(Rest, Solvers, Open + 1, Solutions);
        solution -> distribute(Turn, Solvers, Open, Solutions + 1);
        done -> distribute(Turn, Solvers, Open - 1, Solutions)
    end.

solver(Master, Board, Threshold) ->
    receive
        {work, Queens, Depth} ->
            work(Queens, Depth, Board, Threshold, Master),
            Master ! done,
            solver(Master, Board, Threshold);
        stop -> ok
    end.

%% A board is the list of the columns of its queens, the last row first.
work(_, Board, Board, _, Master) -> Master ! solution;
work(Queens, Depth, Board, Threshold, Master) ->
    place(Board - 1, Queens, fun(Next) ->
        case Depth < Threshold of
            true -> Master ! {work, Next, Depth + 1};
            false -> work(Next, Depth + 1, Board, Threshold, Master)
        end
    end).

%% Calls a function with each board that has a further queen which no other attacks.
place(-1, _, _) -> ok;
place(Column, Queens, Use) ->
    case is_safe(Column, 1, Queens) of
        true -> Use([Column | Queens]);
        false -> ok
    end,
    place(Column - 1, Queens, Use).

is_safe(_, _, []) -> true;
is_safe(Column, Distance, [Queen | Queens]) ->
    Column =/= Queen andalso abs(Column - Queen) =/= Distance
        andalso is_safe(Column, Distance + 1, Queens).

%% Counts the solutions of a board whose taken columns and diagonals are sets of bits.
count(Board, Columns, _, _) when Columns =:= (1 bsl Board) - 1 -> 1;
count(Board, Columns, Rising, Falling) ->
    Free = ((1 bsl Board) - 1) band bnot (Columns bor Rising bor Falling),
    count_free(Free, Board, Columns, Rising, Falling, 0).

count_free(0, _, _, _, _, Sum) -> Sum;
count_free(Free, Board, Columns, Rising, Falling, Sum) ->
    Queen = Free band -Free,
    Solutions = count(Board, Columns bor Queen, (Rising bor Queen) bsl 1, (Falling bor Queen) bsr 1),
    count_free(Free - Queen, Board, Columns, Rising, Falling, Sum + Solutions).
