%% bench_suite_flow.erl - the programs about queues and tasks.
-module(bench_suite_flow).
-export([pipeline/2, crowd/2, backlog/2, tasks/3, spawns/1]).
-import(bench, [start/0, stop/2, expect/3, settle/0, resident/0]).
-import(bench_suite, [group/2, spin/1]).

%% ---- pipeline: a stage may be Room items ahead of the next one ----

-define(STAGES, 3).

pipeline(Room, Size) ->
    Main = self(),
    Sink = spawn_link(fun() -> Main ! {sum, sink(0)} end),
    First = lists:foldl(fun(_, Next) -> spawn_link(fun() -> stage(Next, Room) end) end, Sink, lists:seq(1, ?STAGES)),
    settle(),
    Watch = start(),
    spawn_link(fun() -> source(First, Size, Room) end),
    Sum = receive {sum, N} -> N end,
    Result = stop(Watch, (?STAGES + 1) * Size),
    expect("sum", Sum, Size * (Size + 1) div 2),
    Result.

%% Sends an item. If the receiver has no room, waits for an acknowledgement first. Returns the room that is left.
pass_on(Next, Item, 0) -> receive ack -> pass_on(Next, Item, 1) end;
pass_on(Next, Item, Room) -> Next ! {item, self(), Item}, Room - 1.

source(Next, 0, Room) -> pass_on(Next, 0, Room);
source(Next, Item, Room) -> source(Next, Item - 1, pass_on(Next, Item, Room)).

stage(Next, Room) ->
    receive
        ack -> stage(Next, Room + 1);
        {item, From, Item} ->
            Left = pass_on(Next, Item, Room),
            From ! ack,
            if Item > 0 -> stage(Next, Left); true -> ok end
    end.

sink(Sum) ->
    receive
        {item, _, 0} -> Sum;
        {item, From, Item} -> From ! ack, sink(Sum + Item)
    end.

%% ---- crowd ----

crowd(Senders, Size) ->
    Each = max(Size div Senders, 1),
    Main = self(),
    Receiver = spawn_link(fun() -> Main ! {sum, take(Each * Senders, 0)} end),
    Pids = [spawn_link(fun() -> receive start -> give(Receiver, Each) end end) || _ <- lists:seq(1, Senders)],
    settle(),
    Watch = start(),
    [Pid ! start || Pid <- Pids],
    Sum = receive {sum, N} -> N end,
    Result = stop(Watch, Each * Senders),
    expect("sum", Sum, Senders * Each * (Each + 1) div 2),
    Result.

give(_, 0) -> ok;
give(Receiver, Left) ->
    Receiver ! {self(), Left},
    receive ack -> give(Receiver, Left - 1) end.

take(0, Sum) -> Sum;
take(Left, Sum) -> receive {From, Number} -> From ! ack, take(Left - 1, Sum + Number) end.

%% ---- backlog ----

-define(READERS, 64).

backlog(Idiom, Size) ->
    Each = Size div ?READERS + 1,
    Total = Each * ?READERS,
    Main = self(),
    Readers = [spawn_link(fun() ->
        if Idiom =:= plain -> receive start -> ok end; true -> ok end,
        Main ! {sum, read(Each, 0)}
    end) || _ <- lists:seq(1, ?READERS)],
    if Idiom =:= suspend -> [erlang:suspend_process(Reader) || Reader <- Readers]; true -> ok end,
    settle(),
    Before = resident(),
    Watch = start(),
    send_all(Readers, Readers, 0, Total),
    Queued = resident(),
    [if Idiom =:= suspend -> erlang:resume_process(Reader); true -> Reader ! start end || Reader <- Readers],
    Sum = lists:sum([receive {sum, N} -> N end || _ <- Readers]),
    Result = stop(Watch, Total),
    expect("sum", Sum, Total * (Total - 1) div 2),
    Result#{extra := [{"backlog_mb", (Queued - Before) / (1024 * 1024)}]}.

send_all(_, _, Total, Total) -> ok;
send_all(All, [], Number, Total) -> send_all(All, All, Number, Total);
send_all(All, [Reader | Rest], Number, Total) -> Reader ! {number, Number}, send_all(All, Rest, Number + 1, Total).

read(0, Sum) -> Sum;
read(Left, Sum) -> receive {number, Number} -> read(Left - 1, Sum + Number) end.

%% ---- tasks ----

tasks(Kind, spawn, Size) ->
    settle(),
    Watch = start(),
    Done = group(1, fun(_) -> group(Size, fun(Index) -> task(Kind, Index) end) end),
    Result = stop(Watch, Size),
    expect("tasks", Done, Size),
    Result;
tasks(Kind, pool, Size) ->
    settle(),
    Watch = start(),
    Next = atomics:new(1, []),
    Done = group(2, fun(_) -> pool(Kind, Next, Size, 0) end),
    Result = stop(Watch, Size),
    expect("tasks", Done, Size),
    Result.

pool(Kind, Next, Size, Done) ->
    case atomics:add_get(Next, 1, 1) of
        Index when Index > Size -> Done;
        Index -> pool(Kind, Next, Size, Done + task(Kind, Index))
    end.

task(even, _) -> spin(1000), 1;
task(skewed, Index) when Index rem 100 =:= 0 -> spin(50000), 1;
task(skewed, _) -> spin(500), 1.

%% ---- 50 processes at a time ----

spawns(Size) ->
    settle(),
    Watch = start(),
    Sum = group(1, fun(_) -> spawns(1, Size, 0) end),
    Result = stop(Watch, Size),
    expect("sum", Sum, Size * (Size + 1) div 2),
    Result.

spawns(First, Size, Sum) when First > Size -> Sum;
spawns(First, Size, Sum) ->
    Me = self(),
    Numbers = lists:seq(First, min(First + 49, Size)),
    [spawn(fun() -> Me ! {number, Number} end) || Number <- Numbers],
    spawns(First + 50, Size, lists:foldl(fun(_, S) -> receive {number, N} -> S + N end end, Sum, Numbers)).
