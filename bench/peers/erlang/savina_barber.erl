%% `barber`: customers wait in a room with few places until the barber has time for them; customers who find
%% the room full come again.
-module(savina_barber).
-export([run/2]).

run("barber", #{count := Count, room := Places, arrival := Arrival, work := Work}) ->
    {{Haircuts, Others}, Wall} = savina:measure(fun() -> factory(Count, Places, Arrival, Work) end),
    {[{wall_s, Wall}],
     [{"haircuts", Haircuts, Count},
      {"customers with other than one haircut", Others, 0}]}.

factory(Count, Places, Arrival, Work) ->
    Factory = self(),
    Barber = spawn_link(fun() -> cut(Work, 1, 0) end),
    Room = spawn_link(fun() -> room(Places, Barber, queue:new(), 0, asleep) end),
    send_customers(0, Count, Arrival, 1, Factory, Room),
    Served = counters:new(Count, []),
    serve(Count, Room, Served),
    Room ! exit,
    Barber ! {exit, Factory},
    Haircuts = receive {haircuts, Number} -> Number end,
    {Haircuts, length([I || I <- lists:seq(1, Count), counters:get(Served, I) =/= 1])}.

send_customers(Count, Count, _, _, _, _) -> ok;
send_customers(Index, Count, Arrival, Value, Factory, Room) ->
    Room ! {enter, spawn_link(fun() -> customer(Factory, Index, 0) end)},
    Next = savina:next(Value),
    savina:busy(Next rem Arrival + 10),
    send_customers(Index + 1, Count, Arrival, Next, Factory, Room).

%% Sends those who have returned to the room again, until all have had their haircut.
serve(0, _, _) -> ok;
serve(Left, Room, Served) ->
    receive
        {returned, Customer} ->
            Room ! {enter, Customer},
            serve(Left, Room, Served);
        {done, Index, Haircuts} ->
            counters:add(Served, Index + 1, Haircuts),
            serve(Left - 1, Room, Served)
    end.

room(Places, Barber, Waiting, Size, State) ->
    receive
        {enter, Customer} when Size =:= Places ->
            Customer ! full,
            room(Places, Barber, Waiting, Size, State);
        {enter, Customer} when State =:= asleep ->
            self() ! next,
            room(Places, Barber, queue:in(Customer, Waiting), Size + 1, awake);
        {enter, Customer} ->
            Customer ! wait,
            room(Places, Barber, queue:in(Customer, Waiting), Size + 1, awake);
        next when Size =:= 0 ->
            Barber ! wait,
            room(Places, Barber, Waiting, Size, asleep);
        next ->
            {{value, Customer}, Rest} = queue:out(Waiting),
            Barber ! {enter, Customer, self()},
            room(Places, Barber, Rest, Size - 1, State);
        exit -> ok
    end.

cut(Work, Value, Haircuts) ->
    receive
        {enter, Customer, Room} ->
            Customer ! start,
            Next = savina:next(Value),
            savina:busy(Next rem Work + 10),
            Customer ! done,
            Room ! next,
            cut(Work, Next, Haircuts + 1);
        wait -> cut(Work, Value, Haircuts);
        {exit, Factory} -> Factory ! {haircuts, Haircuts}
    end.

customer(Factory, Index, Haircuts) ->
    receive
        full ->
            Factory ! {returned, self()},
            customer(Factory, Index, Haircuts);
        wait -> customer(Factory, Index, Haircuts);
        start -> customer(Factory, Index, Haircuts + 1);
        done -> Factory ! {done, Index, Haircuts}
    end.
