#!/usr/bin/env escript
%%! -noshell
%% Runs the scenarios of the given files on Erlang/OTP, and prints each file with its events replaced
%% by the events that happened.
%%
%% Usage: conformance.escript FILE...
%%
%% Invariants: the scenarios of a file run at once, each with processes, names and tables of its own,
%% and are printed in the order of the file. A step is over after a pause without events that is much
%% longer than any step takes.
-mode(compile).

main(Files) ->
    logger:set_primary_config(level, none),
    Dir = filename:dirname(escript:script_name()),
    [load(filename:join(Dir, Module)) || Module <- ["actor.erl", "driver.erl", "observer.erl"]],
    {ok, _} = pg:start_link(),
    lists:foreach(fun run/1, Files).

load(File) ->
    {ok, Module, Code} = compile:file(File, [binary, report]),
    {module, Module} = code:load_binary(Module, File, Code).

run(File) ->
    {ok, Text} = file:read_file(File),
    Lines = string:split(string:trim(binary_to_list(Text), trailing), "\n", all),
    %% Indented lines are the old events, which are dropped.
    Kept = [Line || Line <- Lines, not lists:prefix("    ", Line)],
    {Head, Scenarios} = scenarios(Kept),
    Self = self(),
    Runs = [{spawn_monitor(fun() -> Self ! {self(), driver:run(Steps)} end), Title, Steps}
            || {Title, Steps} <- Scenarios],
    [io:put_chars([Line, "\n"]) || Line <- Head],
    lists:foreach(fun print/1, Runs).

%% Splits at the lines that start with `== `.
scenarios(Lines) ->
    IsTitle = fun(Line) -> lists:prefix("== ", Line) end,
    {Head, Rest} = lists:splitwith(fun(Line) -> not IsTitle(Line) end, Lines),
    {Head, group(IsTitle, Rest)}.

group(_, []) -> [];
group(IsTitle, [Title | Rest]) ->
    {Steps, More} = lists:splitwith(fun(Line) -> not IsTitle(Line) end, Rest),
    [{Title, Steps} | group(IsTitle, More)].

print({{Pid, Monitor}, Title, Steps}) ->
    Logs = receive
        {Pid, Result} -> Result;
        {'DOWN', Monitor, process, Pid, Reason} ->
            io:format(standard_error, "~ts: ~p~n", [Title, Reason]),
            halt(1)
    end,
    io:put_chars([Title, "\n"]),
    [io:put_chars([Step, "\n", [["    ", Event, "\n"] || Event <- Events]])
     || {Step, Events} <- lists:zip(Steps, Logs)].
