%% The central design of `social`: one process holds all users. A post is put into its author's profile only, and a
%% timeline is merged from the profiles of the followed users when it is read. So a post is received by nobody before
%% a timeline is read, and there are no deliveries to count: post/4 returns 0.
%%
%% A message is {-Time, Author, Text}, so that the order of terms is newest first. A user is {Profile, Followees}.
-module(bench_social_central).
-export([follow/3, post/4, profile/2, register/3, start/1, timeline/2]).

start(_) -> bench_receiver:spawn_receiver(fun() -> loop(#{}) end).

register(Server, User, _) ->
    ok = call(Server, {register_user, User}),
    Server.

follow({User, Server}, Target, _) -> call(Server, {follow, User, Target}).

post(Server, User, Text, Time) -> call(Server, {send_message, User, Text, Time}).

timeline(Server, User) -> call(Server, {get_timeline, User}).

profile(Server, User) -> call(Server, {get_profile, User}).

call(Server, Request) ->
    Reference = make_ref(),
    Server ! {self(), Reference, Request},
    receive {Reference, Reply} -> Reply end.

loop(Users) ->
    receive
        {Client, Reference, {get_timeline, User}} ->
            {_, Followees} = user(User, Users),
            %% The profiles are sorted already, so a merge sorts them all.
            Client ! {Reference, lists:merge([profile_of(To, Users) || To <- Followees])},
            loop(Users);
        {Client, Reference, {get_profile, User}} ->
            Client ! {Reference, profile_of(User, Users)},
            loop(Users);
        {Client, Reference, {register_user, User}} ->
            Client ! {Reference, ok},
            loop(Users#{User => {[], []}});
        {Client, Reference, {send_message, User, Text, Time}} ->
            {Profile, Followees} = user(User, Users),
            Client ! {Reference, 0},
            loop(Users#{User => {insert({-Time, User, Text}, Profile), Followees}});
        {Client, Reference, {follow, User, Target}} ->
            {Profile, Followees} = user(User, Users),
            Client ! {Reference, ok},
            loop(Users#{User => {Profile, [Target | Followees]}})
    end.

user(User, Users) ->
    case Users of
        #{User := Found} -> Found;
        _ -> {[], []}
    end.

profile_of(User, Users) ->
    {Profile, _} = user(User, Users),
    Profile.

insert(Message, [Newest | _] = Messages) when Message < Newest -> [Message | Messages];
insert(Message, [Newer | Older]) -> [Newer | insert(Message, Older)];
insert(Message, []) -> [Message].
