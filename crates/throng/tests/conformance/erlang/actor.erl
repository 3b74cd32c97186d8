%% The processes of a scenario, and the commands they carry out.
%%
%% A process of kind `process` takes its messages in order, as a gen_server does. A process of kind
%% `async` receives by itself only commands, and other messages only by the command `receive`. A
%% `child` is a gen_server under a supervisor. A process that was spawned linked is a gen_server too,
%% without a supervisor, because it has a parent.
%%
%% Invariant: a process reports each signal and message to the observer at once.
-module(actor).
-behaviour(gen_server).
-export([spawn/5, run/2, reason/1, names/1, start_child/4]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

%% Spawns an actor by Spawn, a spawning function of the module erlang, and returns its result. The
%% observer knows the actor by then.
spawn(Spawn, Kind, Name, Observer, Driver) ->
    State = #{kind => Kind, observer => Observer, driver => Driver, timeout => infinity},
    Spawned = Spawn(fun() -> receive go -> loop(State) end end),
    Pid = case Spawned of
        {P, _} -> P;
        P -> P
    end,
    observer:observe(Observer, {Name, Name}, Pid),
    Pid ! go,
    Spawned.

loop(#{kind := async} = State) ->
    receive {do, Commands} -> loop(run(Commands, State)) end;
loop(#{timeout := Timeout} = State) ->
    receive
        Message -> loop(handle(Message, State#{timeout := infinity}))
    after Timeout ->
        event(State, "timeout"),
        loop(State#{timeout := infinity})
    end.

handle({do, Commands}, State) ->
    run(Commands, State);
handle({'$gen_call', From, Commands}, State) ->
    After = run(Commands, State),
    gen_server:reply(From, done),
    After;
handle({text, Text}, State) ->
    event(State, ["got ", Text]),
    State;
handle({'EXIT', Pid, Reason}, State) ->
    event(State, ["EXIT ", label(State, Pid), " ", reason(Reason)]),
    run(maps:get(on_exit, State, []), maps:remove(on_exit, State));
handle({'DOWN', Monitor, process, Pid, Reason}, State) ->
    Name = maps:get(Monitor, State, "?"),
    event(State, ["DOWN ", Name, " ", label(State, Pid), " ", reason(Reason)]),
    run(maps:get(on_down, State, []), maps:remove(on_down, State));
handle(stop, _) ->
    exit(normal).

%% Carries out commands in order, and returns the state after them.
run(Commands, State) ->
    lists:foldl(fun command/2, State, Commands).

command(["link", Other], State) ->
    link(pid(State, Other)),
    State;
command(["unlink", Other], State) ->
    unlink(pid(State, Other)),
    State;
command(["monitor", Other, Name], State) ->
    monitored(Name, monitor(process, pid(State, Other)), State);
command(["demonitor", Name], State) ->
    demonitor(maps:get({monitor, Name}, State), [flush]),
    State;
command(["trap_exits", Flag], State) ->
    process_flag(trap_exit, Flag =:= "on"),
    State;
command(["exit", Other, Reason], State) ->
    exit(pid(State, Other), list_to_atom(Reason)),
    State;
command(["kill", Other], State) ->
    exit(pid(State, Other), kill),
    State;
command(["stop", Other], State) ->
    pid(State, Other) ! stop,
    State;
command(["die", Reason], _) ->
    exit(list_to_atom(Reason));
command(["crash"], _) ->
    error(boom);
command(["say" | Words], State) ->
    event(State, ["says ", lists:join(" ", Words)]),
    State;
%% Keeps a command, to be carried out when the next exit, or the next down, has arrived.
command(["on_exit" | Command], State) ->
    State#{on_exit => [Command]};
command(["on_down" | Command], State) ->
    State#{on_down => [Command]};
command(["hold"], State) ->
    receive release -> State end;
command(["release", Other], State) ->
    pid(State, Other) ! release,
    State;
command(["alive", Other], State) ->
    Verdict = case is_process_alive(pid(State, Other)) of
        true -> " is alive";
        false -> " is dead"
    end,
    event(State, [Other, Verdict]),
    State;
command(["parent"], State) ->
    {parent, Parent} = process_info(self(), parent),
    event(State, ["parent ", label(State, Parent)]),
    State;
command(["spawn" | Names], State) ->
    [start(fun erlang:spawn/1, process, Name, State) || Name <- Names],
    State;
command(["spawn_async" | Names], State) ->
    [start(fun erlang:spawn/1, async, Name, State) || Name <- Names],
    State;
command(["spawn_linked", Name], #{observer := Observer, driver := Driver} = State) ->
    {ok, _} = start_child(Name, Name, ["linked"], {Observer, Driver}),
    State;
command(["spawn_monitored", Name, MonitorName], State) ->
    {_, Monitor} = start(fun erlang:spawn_monitor/1, process, Name, State),
    monitored(MonitorName, Monitor, State);
command(["send", Other | Words], State) ->
    pid(State, Other) ! text(Words),
    State;
command(["send_after", Time, Other, Text, Name], State) ->
    Timer = erlang:send_after(list_to_integer(Time), pid(State, Other), text([Text])),
    State#{{timer, Name} => Timer};
command(["cancel", Name], State) ->
    Verdict = case erlang:cancel_timer(maps:get({timer, Name}, State)) of
        false -> "was too late for ";
        _ -> "cancelled "
    end,
    event(State, [Verdict, Name]),
    State;
command(["receive_timeout", Time], State) ->
    State#{timeout := list_to_integer(Time)};
command(["receive", What], State) ->
    command(["receive", What, "after", infinity], State);
command(["receive", What, "after", Time], State) ->
    Timeout = case Time of
        infinity -> infinity;
        _ -> list_to_integer(Time)
    end,
    receive
        {text, Text} when What =:= "any"; Text =:= What -> event(State, ["received ", Text])
    after Timeout -> event(State, "received nothing")
    end,
    State;
command(["call", Other, "within", Time | Words], State) ->
    Outcome =
        try gen_server:call(pid(State, Other), [Words], list_to_integer(Time)) of
            done -> "done"
        catch
            exit:{timeout, _} -> "timed out";
            exit:{Reason, _} -> ["failed ", reason(Reason)]
        end,
    event(State, ["call ", Other, " ", Outcome]),
    State;
command(["call", Other | Words], State) ->
    command(["call", Other, "within", "60000" | Words], State);
command(["register", Name, Other], State) ->
    Outcome =
        try register(registered(Name, State), pid(State, Other)) of
            true -> "registered "
        catch
            error:badarg -> "could not register "
        end,
    event(State, [Outcome, Name]),
    State;
command(["unregister", Name], State) ->
    Outcome =
        try unregister(registered(Name, State)) of
            true -> "unregistered "
        catch
            error:badarg -> "could not unregister "
        end,
    event(State, [Outcome, Name]),
    State;
command(["whereis", Name], State) ->
    Who = case whereis(registered(Name, State)) of
        undefined -> "nobody";
        Pid -> label(State, Pid)
    end,
    event(State, [Name, " is ", Who]),
    State;
command(["join", Group], State) ->
    ok = pg:join(registered(Group, State), self()),
    State;
command(["leave", Group], State) ->
    _ = pg:leave(registered(Group, State), self()),
    State;
command(["members", Group], State) ->
    Members = [label(State, Pid) || Pid <- pg:get_members(registered(Group, State))],
    event(State, [Group, " has ", names(lists:sort(Members))]),
    State;
command(["broadcast", Group | Words], State) ->
    [Pid ! text(Words) || Pid <- pg:get_members(registered(Group, State))],
    State.

start(Spawn, Kind, Name, #{observer := Observer, driver := Driver}) ->
    spawn(Spawn, Kind, Name, Observer, Driver).

monitored(Name, Monitor, State) ->
    State#{Monitor => Name, {monitor, Name} => Monitor}.

text(Words) ->
    {text, lists:flatten(lists:join(" ", Words))}.

%% Formats a list of names for the log.
names([]) -> "nobody";
names(Names) -> lists:join(" ", Names).

%% Makes a registered name unique among the scenarios that run at once.
registered(Name, #{driver := Driver}) ->
    list_to_atom(Name ++ pid_to_list(Driver)).

event(#{observer := Observer}, Text) ->
    observer:event(Observer, self(), Text).

pid(#{observer := Observer}, Name) ->
    observer:pid(Observer, Name).

label(#{observer := Observer}, Pid) ->
    observer:label(Observer, Pid).

%% Formats a reason for the log. Every error is `crashed`, except the `noproc` that link/1 to a dead
%% process raises in place of an exit signal. The reason of a supervisor that did not start is
%% `not_started`, because throng words it differently.
reason(Reason) when is_atom(Reason) -> atom_to_list(Reason);
reason({shutdown, {failed_to_start_child, _, _}}) -> "not_started";
reason({noproc, Stack}) when is_list(Stack) -> "noproc";
reason({_, Stack}) when is_list(Stack) -> "crashed".

%% Starts a child of a supervisor, by its specification, or (`linked`) of any other process.
start_child(Name, Lane, Flags, {Observer, Driver}) ->
    gen_server:start_link(?MODULE, {Name, Lane, Flags, Observer, Driver}, []).

init({Name, Lane, Flags, Observer, Driver}) ->
    State = #{kind => process, observer => Observer, driver => Driver, flags => Flags,
              timeout => infinity},
    process_flag(trap_exit, not is(linked, State)),
    case is(quiet, State) of
        true ->
            {ok, State};
        false ->
            Label = observer:observe(Observer, {Name, Lane}, self()),
            init(Label, Name, State)
    end.

init(_, _, #{flags := ["linked"]} = State) ->
    {ok, State};
init(Label, Name, #{flags := Flags} = State) ->
    Second = Label =:= Name ++ "#2",
    Again = Label =/= Name,
    case is(refuses, State) orelse Again andalso is(refuses_again, State)
        orelse Second andalso is(refuses_once, State) of
        true ->
            event(State, "refuses to start"),
            error(refused);
        false ->
            event(State, "started"),
            {ok, run([["register", As, Name] || "named:" ++ As <- Flags], State)}
    end.

is(Flag, #{flags := Flags}) ->
    lists:member(atom_to_list(Flag), Flags).

handle_call(Commands, _, State) ->
    {reply, done, run(Commands, State)}.

handle_cast(_, State) ->
    {noreply, State}.

handle_info(stop, State) ->
    {stop, normal, State};
handle_info(Message, State) ->
    {noreply, handle(Message, State)}.

terminate(Reason, State) ->
    case is(linked, State) orelse is(quiet, State) orelse is(terse, State) of
        true -> ok;
        false -> event(State, ["terminates ", reason(Reason)])
    end,
    case is(stubborn, State) of
        true -> timer:sleep(infinity);
        false -> ok
    end.
