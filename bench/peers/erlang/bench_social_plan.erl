%% The plan of `social`: a graph of follows, requests, and the sums that all timelines and profiles must have. It is
%% that of src/workloads/social/plan.rs, number by number.
-module(bench_social_plan).
-export([fold/2, followees/1, requests/2, sums/2, trial/0]).

-define(MASK, 16#FFFFFFFFFFFFFFFF).

%% The seeds of the draws.
-define(FOLLOWS, 1).
-define(REQUESTS, 2).

%% The sums of the plan of 100 users with Zipf follows, which is made before each run: both languages draw the same.
-define(TRIAL, {55900215197, 53849258416}).

%% The output of splitmix64 with a seed that follows Index others.
draw(Seed, Index) ->
    State = (Seed + (Index + 1) * 16#9E3779B97F4A7C15) band ?MASK,
    A = ((State bxor (State bsr 30)) * 16#BF58476D1CE4E5B9) band ?MASK,
    B = ((A bxor (A bsr 27)) * 16#94D049BB133111EB) band ?MASK,
    B bxor (B bsr 31).

%% The users that each user follows, as a tuple of sorted lists.
followees(#{count := Users, graph := Graph, follows := Follows}) ->
    Target = target(Graph, Users),
    list_to_tuple([
        lists:usort([To || At <- lists:seq(0, Follows - 1), To <- [Target(User, At, Follows)], To =/= User])
        || User <- lists:seq(0, Users - 1)]).

target("ring", Users) ->
    fun(User, At, _) -> (User + 1 + At) rem Users end;
target("uniform", Users) ->
    fun(User, At, Follows) -> draw(?FOLLOWS, User * Follows + At) rem Users end;
target("zipf", Users) ->
    %% Each sum is that of the weights up to a user; the first user has the greatest.
    {Sums, Total} = lists:mapfoldl(fun(Rank, Sum) ->
        Next = Sum + (1 bsl 40) div Rank,
        {Next, Next}
    end, 0, lists:seq(1, Users)),
    Table = list_to_tuple(Sums),
    fun(User, At, Follows) -> above(draw(?FOLLOWS, User * Follows + At) rem Total, Table, 0, Users) end.

%% The index of the first sum that is greater than a number.
above(_, _, Low, Low) -> Low;
above(Number, Table, Low, High) ->
    Middle = (Low + High) div 2,
    case element(Middle + 1, Table) of
        Sum when Sum > Number -> above(Number, Table, Low, Middle);
        _ -> above(Number, Table, Middle + 1, High)
    end.

%% The requests of a round: the kind, the user and the time of each.
requests(Round, #{count := Users, part := Part, posts := Posts, requests := Requests}) ->
    First = Round * Requests,
    [request(Part, draw(?REQUESTS, Index), Users, Users * Posts + 1 + Index)
     || Index <- lists:seq(First, First + Requests - 1)].

request(Part, Draw, Users, Time) -> {kind(Part, Draw rem 100), (Draw div 100) rem Users, Time}.

kind("timelines", _) -> timeline;
kind("profiles", _) -> profile;
kind("redirects", _) -> redirect;
kind("deliveries", _) -> post;
kind("mix", Percent) when Percent < 80 -> timeline;
kind("mix", Percent) when Percent < 95 -> profile;
kind("mix", _) -> post.

%% The sums of all timelines and of all profiles at the end, given the requests of all rounds.
sums(#{count := Users, posts := Posts}, {Followees, Rounds}) ->
    Before = [{Index rem Users, Index + 1} || Index <- lists:seq(0, Users * Posts - 1)],
    Timed = [{User, Time} || Requests <- Rounds, {post, User, Time} <- Requests],
    %% The newest posts are inserted last, so each list has its newest first.
    Profiles = profiles(Users, lists:sort(fun({_, A}, {_, B}) -> A =< B end, Before ++ Timed)),
    Timeline = fun(User) ->
        Times = [element(To + 1, Profiles) || To <- element(User + 1, Followees)],
        lists:reverse(lists:sort(lists:append(Times)))
    end,
    {lists:sum([fold(Timeline(User), 0) || User <- lists:seq(0, Users - 1)]),
     lists:sum([fold(element(User + 1, Profiles), 0) || User <- lists:seq(0, Users - 1)])}.

profiles(Users, Posts) ->
    Of = lists:foldl(fun({User, Time}, Map) ->
        maps:update_with(User, fun(Times) -> [Time | Times] end, [Time], Map)
    end, #{}, Posts),
    list_to_tuple([maps:get(User, Of, []) || User <- lists:seq(0, Users - 1)]).

%% A number that depends on the times of posts and on their order, newest first.
fold([Time | Rest], Sum) -> fold(Rest, (Sum * 31 + Time) band 16#3FFFFFFF);
fold([], Sum) -> Sum.

%% Checks that the plan is that of the other language.
trial() ->
    Settings = #{count => 100, graph => "zipf", follows => 25, posts => 10, part => "mix", requests => 1000},
    {Timelines, Profiles} = sums(Settings, {followees(Settings), [requests(0, Settings)]}),
    {DueTimelines, DueProfiles} = ?TRIAL,
    [{"the sum of the timelines of a trial plan", Timelines, DueTimelines},
     {"the sum of the profiles of a trial plan", Profiles, DueProfiles}].
