%% The driver of a scenario: carries out its steps in order, each after the step before has come to
%% rest, and starts and manages its supervisors.
-module(driver).
-behaviour(supervisor).
-export([run/1, init/1, start_supervisor/5, start_each/4]).

%% Much longer than any step takes.
-define(REST_MS, 150).

%% Runs the lines of a scenario, and returns the events of each.
run(Lines) ->
    process_flag(trap_exit, true),
    Observer = observer:start(),
    State = #{kind => driver, observer => Observer, driver => self()},
    {Logs, _} = lists:mapfoldl(fun line/2, State, Lines),
    observer:stop(Observer),
    Logs.

line("#" ++ _, State) -> {[], State};
line("", State) -> {[], State};
line(Line, #{observer := Observer} = State) ->
    [Who, What] = string:split(Line, ": "),
    Commands = [string:lexemes(Command, " ") || Command <- string:split(What, " ; ", all)],
    After = case Who of
        "driver" ->
            lists:foldl(fun command/2, State, Commands);
        _ ->
            observer:pid(Observer, Who) ! {do, Commands},
            State
    end,
    timer:sleep(?REST_MS),
    {observer:take(Observer), After}.

command(["wait", Time], State) ->
    timer:sleep(list_to_integer(Time)),
    State;
command(["define", Name, Strategy, Intensity | Children], State) ->
    State#{{defined, Name} => {Strategy, Intensity, Children}};
command(["supervise", Name, Strategy, Intensity | Children], #{observer := Observer} = State) ->
    Definition = {Strategy, Intensity, Children},
    case start_supervisor(Name, Name, Definition, State, Observer) of
        {ok, _} -> ok;
        {error, _} -> event(State, [Name, " did not start"])
    end,
    flush_exits(),
    State;
command(["start_child", Supervisor, Child], State) ->
    Spec = case string:split(Child, "()") of
        %% Another child of a dynamic supervisor's only kind.
        [Name, []] -> [Name];
        _ -> spec(Child, Supervisor, State)
    end,
    answer(start_child, supervisor:start_child(pid(Supervisor, State), Spec), State);
command(["terminate_child", Supervisor, Child], State) ->
    answer(terminate_child, supervisor:terminate_child(pid(Supervisor, State), id(Child, State)), State);
command(["restart_child", Supervisor, Child], State) ->
    answer(restart_child, supervisor:restart_child(pid(Supervisor, State), Child), State);
command(["delete_child", Supervisor, Child], State) ->
    answer(delete_child, supervisor:delete_child(pid(Supervisor, State), Child), State);
command(["which_children", Supervisor], State) ->
    Children = supervisor:which_children(pid(Supervisor, State)),
    Names = lists:sort([lists:flatten(child(Child, State)) || Child <- Children]),
    event(State, [Supervisor, " has ", actor:names(Names)]),
    State;
command(["count_children", Supervisor], State) ->
    Counts = supervisor:count_children(pid(Supervisor, State)),
    Words = [io_lib:format("~p ~p", [Kind, Count]) || {Kind, Count} <- Counts],
    event(State, [Supervisor, " has ", lists:join(", ", Words)]),
    State;
command(Command, State) ->
    actor:run([Command], State).

answer(What, Answer, State) ->
    Text = case Answer of
        ok -> "ok";
        {ok, _} -> "ok";
        {error, Reason} when is_atom(Reason) -> atom_to_list(Reason);
        {error, {already_started, _}} -> "already_started";
        {error, _} -> "failed"
    end,
    event(State, [atom_to_list(What), " ", Text]),
    State.

child({undefined, Pid, _, _}, State) when is_pid(Pid) -> label(Pid, State);
child({Id, undefined, _, _}, _) -> [Id, "(not running)"];
child({Id, restarting, _, _}, _) -> [Id, "(restarting)"];
child({_, Pid, _, _}, State) -> label(Pid, State).

%% Returns a process, for a dynamic supervisor, or an id, for all others.
id(Name, State) ->
    case string:split(Name, "()") of
        [Bare, []] -> pid(Bare, State);
        _ -> Name
    end.

event(#{observer := Observer}, Text) -> observer:event(Observer, self(), Text).
pid(Name, #{observer := Observer}) -> observer:pid(Observer, Name).
label(Pid, #{observer := Observer}) -> observer:label(Observer, Pid).

flush_exits() ->
    receive {'EXIT', _, _} -> flush_exits() after 0 -> ok end.

start_supervisor(Name, Lane, Definition, State, Observer) ->
    supervisor:start_link(?MODULE, {Name, Lane, Definition, State, Observer}).

%% A supervisor: `STRATEGY INTENSITY/PERIOD[/AUTO_SHUTDOWN] CHILD...`. The events of its children are
%% in the lane of the topmost supervisor.
init({Name, Lane, {Strategy, Intensity, Children}, State, Observer}) ->
    observer:observe(Observer, {Name, Lane}, self()),
    [Restarts, Period | Auto] = string:lexemes(Intensity, "/"),
    Flags = #{strategy => list_to_atom(Strategy), intensity => list_to_integer(Restarts),
              period => list_to_integer(Period),
              auto_shutdown => list_to_atom(lists:append(Auto ++ ["never" || Auto =:= []]))},
    {ok, {Flags, [spec(Child, Lane, State) || Child <- Children]}}.

%% Returns a child's specification from `ID(WORD,...)`: a restart kind, a shutdown, and flags.
spec(Text, Lane, #{observer := Observer, driver := Driver} = State) ->
    [Id | Rest] = string:lexemes(Text, "(,)"),
    Flags = [Word || Word <- Rest, restart(Word) =:= none, shutdown(Word) =:= none],
    Restart = hd([R || Word <- Rest, R <- [restart(Word)], R =/= none] ++ [permanent]),
    Shutdowns = [S || Word <- Rest, S <- [shutdown(Word)], S =/= none],
    Shutdown = hd(Shutdowns ++ [5000]),
    Spec = #{id => Id, restart => Restart, shutdown => Shutdown,
             significant => lists:member("significant", Flags)},
    case State of
        #{{defined, Id} := Definition} ->
            Start = {?MODULE, start_supervisor, [Id, Lane, Definition, State, Observer]},
            Spec#{type => supervisor, shutdown => hd(Shutdowns ++ [infinity]), start => Start};
        _ when Id =:= "each" ->
            %% The call that starts a child gives its name.
            Spec#{start => {?MODULE, start_each, [Lane, Flags, {Observer, Driver}]}};
        _ ->
            Spec#{start => {actor, start_child, [Id, Lane, Flags, {Observer, Driver}]}}
    end.

start_each(Lane, Flags, Who, Name) ->
    actor:start_child(Name, Lane, Flags, Who).

restart("permanent") -> permanent;
restart("transient") -> transient;
restart("temporary") -> temporary;
restart(_) -> none.

shutdown("brutal_kill") -> brutal_kill;
shutdown("infinity") -> infinity;
shutdown(Word) ->
    case string:to_integer(Word) of
        {Time, []} -> Time;
        _ -> none
    end.
