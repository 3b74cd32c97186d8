%% `skynet`: a tree of processes, ten children to each.
-module(bench_skynet).
-export([run/2]).
-import(bench_measure, [clock/0]).

run("skynet", #{count := Count}) ->
    Driver = self(),
    Start = clock(),
    spawn_link(fun() -> tree(Driver, 0, Count) end),
    Sum = receive {sum, Received} -> Received after 300_000 -> -1 end,
    Elapsed = clock() - Start,
    {[{wall_s, Elapsed / 1.0e9}], [{"the sum", Sum, Count * (Count - 1) div 2}]}.

%% A process of the tree: it sends the sum of its leaves to its parent, and exits.
tree(Parent, Leaf, End) when End - Leaf =:= 1 -> Parent ! {sum, Leaf};
tree(Parent, Begin, End) ->
    Node = self(),
    Count = End - Begin,
    Parts = min(Count, 10),
    start_children(0, Parts, Count, Begin, Node),
    Parent ! {sum, add_children(Parts, 0)}.

start_children(Parts, Parts, _, _, _) -> ok;
start_children(Part, Parts, Count, Begin, Node) ->
    First = Begin + Count * Part div Parts,
    End = Begin + Count * (Part + 1) div Parts,
    spawn(fun() -> tree(Node, First, End) end),
    start_children(Part + 1, Parts, Count, Begin, Node).

add_children(0, Sum) -> Sum;
add_children(Left, Sum) -> receive {sum, Part} -> add_children(Left - 1, Sum + Part) end.
