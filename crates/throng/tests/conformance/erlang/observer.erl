%% The observer of a scenario: the labels of its processes, and the log of its events and ends.
%%
%% Invariants: a process is known here before it can end, so each end is seen exactly once. A name
%% maps to the process that bore it last, and each process keeps the label it was given.
-module(observer).
-export([start/0, stop/1, observe/3, event/3, take/1, pid/2, label/2]).

%% Starts an observer: a process, and the table of names that it keeps.
start() ->
    Names = ets:new(names, [public]),
    {spawn_link(fun() -> loop(Names, []) end), Names}.

stop({Pid, Names}) ->
    [exit(Known, kill) || {Known, _, _} <- ets:tab2list(Names), is_pid(Known)],
    unlink(Pid),
    exit(Pid, kill),
    ok.

%% Makes Pid known by a name and in a lane of events, and returns its label.
observe({Observer, _}, Names, Pid) ->
    Observer ! {observe, self(), Names, Pid},
    receive {observed, Pid, Label} -> Label end.

event({Observer, _}, Pid, Text) ->
    Observer ! {event, Pid, Text},
    ok.

%% Returns the events since the last call, as lines in the order of the log: by lane, with the ends
%% last.
take({Observer, _}) ->
    Observer ! {take, self()},
    receive
        {taken, Lines} -> Lines;
        {'EXIT', Observer, Reason} -> exit(Reason)
    end.

%% Returns the process with a name: `c` is the youngest with that name, `c#1` the first.
pid({_, Table}, Name) ->
    case ets:lookup(Table, Name) of
        [{_, Pid}] -> Pid;
        [] -> exit({nobody_is_called, Name})
    end.

label({_, Table}, Pid) ->
    case ets:lookup(Table, Pid) of
        [{_, Label, _}] -> Label;
        [] -> "driver"
    end.

loop(Table, Events) ->
    receive
        {observe, From, {Name, Lane}, Pid} ->
            monitor(process, Pid),
            Count = ets:update_counter(Table, {count, Name}, 1, {{count, Name}, 0}),
            Label = case Count of
                1 -> Name;
                _ -> lists:concat([Name, "#", Count])
            end,
            ets:insert(Table, [{Name, Pid}, {lists:concat([Name, "#", Count]), Pid},
                               {Pid, Label, Lane}]),
            From ! {observed, Pid, Label},
            loop(Table, Events);
        {event, Pid, Text} ->
            {Label, Lane} = case ets:lookup(Table, Pid) of
                [{_, L, La}] -> {L, La};
                [] -> {"driver", ""}
            end,
            loop(Table, [{{1, Lane}, [Label, ": ", Text]} | Events]);
        {'DOWN', _, process, Pid, Reason} ->
            [{_, Label, _}] = ets:lookup(Table, Pid),
            loop(Table, [{{2, Label}, [Label, ": ended ", actor:reason(Reason)]} | Events]);
        {take, From} ->
            Sorted = lists:keysort(1, lists:reverse(Events)),
            From ! {taken, [lists:flatten(Line) || {_, Line} <- Sorted]},
            loop(Table, [])
    end.
