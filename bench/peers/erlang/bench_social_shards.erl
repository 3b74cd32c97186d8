%% The parallel design of `social`: processes that hold shards of users. A post is pushed to the timeline of each
%% follower, with one message per shard, and each shard acknowledges its followers to the client.
%%
%% A message is {-Time, Author, Text}, so that the order of terms is newest first. A user is
%% {Timeline, Profile, Followers}, and Followers has for each shard the number and the list of the followers there.
-module(bench_social_shards).
-export([follow/3, post/4, profile/2, redirect/2, register/3, start/1, timeline/2]).

-define(NOBODY, {[], [], #{}}).

%% Starts the directory, which starts a shard when the last is full.
start(#{users_per_process := Each}) ->
    bench_receiver:spawn_receiver(fun() -> directory(#{}, Each, none, 0) end).

%% Registers a user, and returns its shard.
register(Directory, User, Name) ->
    Reference = make_ref(),
    Directory ! {register_user, self(), Reference, User, Name},
    receive {Reference, user_registered, Shard} -> Shard end.

%% Reads the profile of a user whose shard the client does not know.
redirect(Directory, Name) ->
    Reference = make_ref(),
    Directory ! {get_profile, self(), Reference, Name},
    receive {Reference, profile, Messages} -> Messages end.

directory(Users, Each, Newest, Count) ->
    receive
        {register_user, Client, Reference, User, Name} ->
            Shard = case Count rem Each of
                0 -> bench_receiver:spawn_receiver(fun() -> loop(#{}) end);
                _ -> Newest
            end,
            Client ! {Reference, user_registered, Shard},
            directory(Users#{Name => {Shard, User}}, Each, Shard, Count + 1);
        {get_profile, Client, Reference, Name} ->
            #{Name := {Shard, User}} = Users,
            Shard ! {get_profile, Client, Reference, User},
            directory(Users, Each, Newest, Count)
    end.

%% Makes a user a follower of another, and returns when its timeline has the other's posts.
follow({User, Shard}, Target, TargetShard) ->
    Reference = make_ref(),
    TargetShard ! {follow, self(), Reference, Target, User, Shard},
    receive {Reference, followed} -> ok end.

%% Sends a message; returns the number of followers that have received it when the last has.
post(Shard, User, Text, Time) ->
    Reference = make_ref(),
    Shard ! {send_message, self(), Reference, User, Text, Time},
    receive {Reference, message_sent, Shards} -> received(Reference, Shards, 0) end.

received(_, 0, Count) -> Count;
received(Reference, Shards, Count) ->
    receive {Reference, received, More} -> received(Reference, Shards - 1, Count + More) end.

timeline(Shard, User) ->
    Reference = make_ref(),
    Shard ! {get_timeline, self(), Reference, User},
    receive {Reference, timeline, Messages} -> Messages end.

profile(Shard, User) ->
    Reference = make_ref(),
    Shard ! {get_profile, self(), Reference, User},
    receive {Reference, profile, Messages} -> Messages end.

loop(Users) ->
    receive
        {receive_message, Client, Reference, Count, Followers, Message} ->
            Next = deliver(Followers, Message, Users),
            Client ! {Reference, received, Count},
            loop(Next);
        {get_timeline, Client, Reference, User} ->
            {Timeline, _, _} = user(User, Users),
            Client ! {Reference, timeline, Timeline},
            loop(Users);
        {get_profile, Client, Reference, User} ->
            {_, Profile, _} = user(User, Users),
            Client ! {Reference, profile, Profile},
            loop(Users);
        {send_message, Client, Reference, User, Text, Time} ->
            {Timeline, Profile, Followers} = user(User, Users),
            Message = {-Time, User, Text},
            maps:foreach(fun(Shard, {Count, There}) ->
                Shard ! {receive_message, Client, Reference, Count, There, Message}
            end, Followers),
            Client ! {Reference, message_sent, map_size(Followers)},
            loop(Users#{User => {Timeline, insert(Message, Profile), Followers}});
        {follow, Client, Reference, User, Follower, Shard} ->
            {Timeline, Profile, Followers} = user(User, Users),
            {Count, There} = maps:get(Shard, Followers, {0, []}),
            %% A user that follows twice gets no second copy; the plan has no such follow.
            Shard ! {back_fill, Client, Reference, Follower, Profile},
            loop(Users#{User => {Timeline, Profile, Followers#{Shard => {Count + 1, [Follower | There]}}}});
        {back_fill, Client, Reference, User, Messages} ->
            {Timeline, Profile, Followers} = user(User, Users),
            Client ! {Reference, followed},
            loop(Users#{User => {lists:merge(Timeline, Messages), Profile, Followers}})
    end.

user(User, Users) ->
    case Users of
        #{User := Found} -> Found;
        _ -> ?NOBODY
    end.

deliver([User | Rest], Message, Users) ->
    {Timeline, Profile, Followers} = user(User, Users),
    deliver(Rest, Message, Users#{User => {insert(Message, Timeline), Profile, Followers}});
deliver([], _, Users) -> Users.

%% Most messages are newer than all others.
insert(Message, [Newest | _] = Messages) when Message < Newest -> [Message | Messages];
insert(Message, [Newer | Older]) -> [Newer | insert(Message, Older)];
insert(Message, []) -> [Message].
