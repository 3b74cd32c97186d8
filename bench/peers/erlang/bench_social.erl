%% `social`: clients send messages and read timelines and profiles of a microblog, in the parallel design, or in the
%% central one if SOCIAL_DESIGN says so.
-module(bench_social).
-export([run/2]).
-import(bench_measure, [clock/0, quantiles/2]).

%% Each of so many requests of a client, the first included, is timed separately.
-define(SAMPLED, 8).

run("social", #{rounds := Rounds, dropped := Dropped} = Settings) when Dropped >= Rounds ->
    _ = Settings,
    exit({refused, "dropped must be less than rounds"});
run("social", #{count := Users, posts := Posts, rounds := Rounds, dropped := Dropped} = Settings) ->
    Trial = bench_social_plan:trial(),
    Design = case os:getenv("SOCIAL_DESIGN") of "central" -> bench_social_central; _ -> bench_social_shards end,
    Followees = bench_social_plan:followees(Settings),
    Requests = [bench_social_plan:requests(Round, Settings) || Round <- lists:seq(0, Rounds - 1)],
    Directory = Design:start(Settings),
    Registering = clock(),
    Processes = [Design:register(Directory, User, name(User)) || User <- lists:seq(0, Users - 1)],
    Registered = clock(),
    %% Not copied to each client.
    persistent_term:put(social_processes, {Directory, list_to_tuple(Processes)}),
    Process = fun(User) -> element(User + 1, element(2, persistent_term:get(social_processes))) end,

    Follows = [{follow, User, To} || User <- lists:seq(0, Users - 1), To <- element(User + 1, Followees)],
    Following = clock(),
    on_clients(Follows, Settings, fun({follow, User, To}) ->
        ok = Design:follow({User, Process(User)}, To, Process(To))
    end),
    Followed = clock(),
    Before = [{Index rem Users, Index + 1} || Index <- lists:seq(0, Users * Posts - 1)],
    on_clients(Before, Settings, fun({User, Time}) -> Design:post(Process(User), User, text(Time), Time) end),

    {Kept, Wrong} = rounds(0, Requests, Design, Process, Followees, Settings, [], 0),
    Timed = lists:nthtail(Dropped, Kept),
    Times = [Time || {Time, _, _} <- Timed],
    Elapsed = lists:sum(Times),
    Mean = Elapsed / length(Times),
    Deviation = case Times of
        [_] -> [];
        _ -> [{round_deviation_ns, math:sqrt(lists:sum([(Time - Mean) * (Time - Mean) || Time <- Times]) / (length(Times) - 1))}]
    end,
    Latencies = lists:append([Each || {_, _, Each} <- Timed]),
    Deliveries = lists:sum([Delivered || {_, Delivered, _} <- Timed]),
    RoundQuantiles = quantiles(round, Times),

    {DueTimelines, DueProfiles} = bench_social_plan:sums(Settings, {Followees, Requests}),
    Everybody = lists:seq(0, Users - 1),
    Timelines = lists:sum([sum(Design:timeline(Process(User), User)) || User <- Everybody]),
    Profiles = lists:sum([sum(Design:profile(Process(User), User)) || User <- Everybody]),
    Kinds = [Kind || {Kind, _, _} <- lists:append(lists:nthtail(Dropped, Requests))],
    Rate = fun(Name, Count) when Count > 0 -> [{Name, Count * 1.0e9 / Elapsed}]; (_, _) -> [] end,
    Of = fun(Kind) -> length([1 || Found <- Kinds, Found =:= Kind]) end,
    Followers = followers(Followees),
    Due = lists:sum([maps:get(User, Followers, 0) || {post, User, _} <- lists:append(lists:nthtail(Dropped, Requests))]),
    DueHere = case Design of bench_social_central -> 0; _ -> Due end,
    {Rate(deliveries_per_s, Deliveries) ++ Rate(posts_per_s, Of(post)) ++
         Rate(timelines_per_s, Of(timeline)) ++ Rate(profiles_per_s, Of(profile)) ++ Rate(redirects_per_s, Of(redirect)) ++
         [{round_mean_ns, Mean}, {register_ns, (Registered - Registering) / Users}] ++ Deviation ++
         [{follow_ns, (Followed - Following) / length(Follows)} || Follows =/= []] ++
         [quantiles(latency, Latencies), RoundQuantiles],
     Trial ++
         [{"wrong answers", Wrong, 0},
          {"deliveries", Deliveries, DueHere},
          {"the sum of the timelines", Timelines, DueTimelines},
          {"the sum of the profiles", Profiles, DueProfiles}]}.

followers(Followees) ->
    lists:foldl(fun(To, Map) -> maps:update_with(To, fun(Count) -> Count + 1 end, 1, Map) end, #{},
                lists:append(tuple_to_list(Followees))).

name(User) -> <<"user_", (integer_to_binary(User))/binary>>.

text(Time) -> <<"post ", (integer_to_binary(Time))/binary>>.

%% Runs the rounds, each after the other. Returns for each its time, deliveries and latencies, and the number of
%% wrong answers in all.
rounds(_, [], _, _, _, _, Done, Wrong) -> {lists:reverse(Done), Wrong};
rounds(Round, [Requests | Rest], Design, Process, Followees, #{posts := Posts, read := Read} = Settings, Done, Wrong) ->
    %% Each client has its requests with the addresses and the numbers of posts to expect before the clock starts.
    Drawn = [case Kind of
                 timeline -> {timeline, Process(User), User, min(Read, Posts * length(element(User + 1, Followees)))};
                 profile -> {profile, Process(User), User, min(Read, Posts)};
                 redirect -> {redirect, name(User), min(Read, Posts)};
                 post -> {post, Process(User), User, Time}
             end || {Kind, User, Time} <- Requests],
    {Elapsed, Counted} = on_clients_timed(Drawn, Settings, fun(Own) -> serve(Own, Design, Read, 0, 0, 0, []) end),
    {Delivered, Missed, Latencies} = lists:foldl(fun({D, M, L}, {Ds, Ms, Ls}) ->
        {D + Ds, M + Ms, L ++ Ls}
    end, {0, 0, []}, Counted),
    rounds(Round + 1, Rest, Design, Process, Followees, Settings, [{Elapsed, Delivered, Latencies} | Done],
           Wrong + Missed).

%% A client: makes its requests one after the other.
serve([], _, _, _, Delivered, Wrong, Latencies) -> {Delivered, Wrong, Latencies};
serve([Request | Rest], Design, Read, Index, Delivered, Wrong, Latencies) when Index rem ?SAMPLED =:= 0 ->
    Start = clock(),
    {More, Missed} = request(Request, Design, Read),
    serve(Rest, Design, Read, Index + 1, Delivered + More, Wrong + Missed, [clock() - Start | Latencies]);
serve([Request | Rest], Design, Read, Index, Delivered, Wrong, Latencies) ->
    {More, Missed} = request(Request, Design, Read),
    serve(Rest, Design, Read, Index + 1, Delivered + More, Wrong + Missed, Latencies).

request({timeline, Process, User, Due}, Design, Read) ->
    {0, wrong(Design:timeline(Process, User), Read, Due, 0, -(1 bsl 58))};
request({profile, Process, User, Due}, Design, Read) ->
    {0, wrong(Design:profile(Process, User), Read, Due, 0, -(1 bsl 58))};
request({redirect, Name, Due}, Design, Read) ->
    {Directory, _} = persistent_term:get(social_processes),
    {0, wrong(Design:redirect(Directory, Name), Read, Due, 0, -(1 bsl 58))};
request({post, Process, User, Time}, Design, _) ->
    {Design:post(Process, User, text(Time), Time), 0}.

%% Reads the newest messages; returns 1 unless they are newest first, have texts, and are as many as are due.
wrong([{Key, _, Text} | Rest], Left, Due, Count, Newer) when Left > 0 ->
    case Key > Newer andalso byte_size(Text) > 5 of
        true -> wrong(Rest, Left - 1, Due, Count + 1, Key);
        false -> 1
    end;
wrong(_, _, Due, Count, _) when Count >= Due -> 0;
wrong(_, _, _, _, _) -> 1.

sum(Messages) -> sum(Messages, 0).

%% The text of each message must be its time's.
sum([{Key, _, Text} | Rest], Sum) ->
    Text = text(-Key),
    sum(Rest, (Sum * 31 - Key) band 16#3FFFFFFF);
sum([], Sum) -> Sum.

%% Applies a function to all items, client i to each item of i modulo the number of clients.
on_clients(Items, Settings, Apply) ->
    on_clients_timed(Items, Settings, fun(Own) -> lists:foreach(Apply, Own) end).

%% The same with a function of all items of a client. Returns the time from the start of the clients, and their results.
on_clients_timed(Items, #{clients := Clients}, Serve) ->
    Driver = self(),
    Started = [spawn_link(fun() ->
        receive {own, Own} -> Driver ! ready end,
        receive go -> Driver ! {served, Serve(Own)} end
    end) || _ <- lists:seq(1, Clients)],
    [Client ! {own, Own} || {Client, Own} <- lists:zip(Started, deal(Items, Clients))],
    [receive ready -> ok end || _ <- Started],
    Start = clock(),
    [Client ! go || Client <- Started],
    Results = [receive {served, Result} -> Result end || _ <- Started],
    {clock() - Start, Results}.

deal(Items, 1) -> [Items];
deal(Items, Clients) ->
    Numbered = lists:zip(Items, [Index rem Clients || Index <- lists:seq(0, length(Items) - 1)]),
    Of = lists:foldr(fun({Item, Client}, Map) ->
        maps:update_with(Client, fun(Rest) -> [Item | Rest] end, [Item], Map)
    end, #{}, Numbered),
    [maps:get(Client, Of, []) || Client <- lists:seq(0, Clients - 1)].
