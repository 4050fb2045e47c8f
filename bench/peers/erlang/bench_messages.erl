%% bench_messages.erl - the benchmarks of messages.
-module(bench_messages).
-export([pingpong/1, ring/1, counting/1, fanin/1, big/1, forkjoin/1]).
-import(bench, [start/0, stop/2, expect/3, settle/0]).

%% ---- pingpong: one round trip after another ----

pingpong(Size) ->
    Main = self(),
    Pong = spawn_link(fun() -> pong(Main, 0) end),
    settle(),
    Watch = start(),
    spawn_link(fun() -> ping(Pong, Size) end),
    Answered = receive {answered, N} -> N end,
    Result = stop(Watch, 2 * Size),
    expect("round trips", Answered, Size),
    Result.

ping(Pong, 0) -> Pong ! over;
ping(Pong, Left) ->
    Pong ! {self(), Left},
    receive Left -> ping(Pong, Left - 1) end.

pong(Main, Answered) ->
    receive
        {From, Left} -> From ! Left, pong(Main, Answered + 1);
        over -> Main ! {answered, Answered}
    end.

%% ---- ring: one token, a thousand processes ----

-define(RING, 1000).

ring(Size) ->
    Main = self(),
    Last = spawn_link(fun() -> receive {next, Next} -> member(Main, Next, 0) end end),
    First = lists:foldl(fun(_, Next) -> spawn_link(fun() -> member(Main, Next, 0) end) end, Last,
                        lists:seq(2, ?RING)),
    Last ! {next, First},
    settle(),
    Watch = start(),
    First ! Size,
    Rounds = receive {rounds, N} -> N end,
    Result = stop(Watch, Size),
    expect("rounds", Rounds, Size div ?RING + 1),
    Result.

%% A token that is a multiple of the ring's length always comes to the same member.
member(Main, Next, Rounds) ->
    receive
        0 -> Main ! {rounds, Rounds + 1};
        Left when Left rem ?RING =:= 0 -> Next ! Left - 1, member(Main, Next, Rounds + 1);
        Left -> Next ! Left - 1, member(Main, Next, Rounds)
    end.

%% ---- counting: one process sends numbers, another adds them up ----

counting(Size) ->
    Main = self(),
    Counter = spawn_link(fun() -> count(Main, Size, 0) end),
    settle(),
    Watch = start(),
    spawn_link(fun() -> produce(Counter, 0, Size) end),
    Sum = receive {sum, N} -> N end,
    Result = stop(Watch, Size),
    expect("the sum", Sum, Size * (Size - 1) div 2),
    Result.

produce(_, Size, Size) -> ok;
produce(Counter, N, Size) -> Counter ! N, produce(Counter, N + 1, Size).

count(Main, 0, Sum) -> Main ! {sum, Sum};
count(Main, Left, Sum) -> receive N -> count(Main, Left - 1, Sum + N) end.

%% ---- fanin: a hundred processes send to one ----

-define(PRODUCERS, 100).

fanin(Size) ->
    Main = self(),
    Consumer = spawn_link(fun() -> count(Main, ?PRODUCERS * Size, 0) end),
    Producers = [spawn_link(fun() -> receive go -> send_ones(Consumer, Size) end end)
                 || _ <- lists:seq(1, ?PRODUCERS)],
    settle(),
    Watch = start(),
    [Producer ! go || Producer <- Producers],
    Received = receive {sum, N} -> N end,
    Result = stop(Watch, ?PRODUCERS * Size),
    expect("messages", Received, ?PRODUCERS * Size),
    Result.

send_ones(_, 0) -> ok;
send_ones(Consumer, Left) -> Consumer ! 1, send_ones(Consumer, Left - 1).

%% ---- big: 500 processes send to each other ----

-define(PINGERS, 500).

big(Size) ->
    Judge = self(),
    Pingers = [spawn_link(fun() -> receive {pingers, All} -> pinger_start(I, All, Judge, Size) end end)
               || I <- lists:seq(1, ?PINGERS)],
    All = list_to_tuple(Pingers),
    [Pinger ! {pingers, All} || Pinger <- Pingers],
    settle(),
    Watch = start(),
    [Pinger ! go || Pinger <- Pingers],
    Pongs = lists:sum([receive {ponged, N} -> N end || _ <- Pingers]),
    Result = stop(Watch, 2 * ?PINGERS * Size),
    expect("pongs", Pongs, ?PINGERS * Size),
    Result.

pinger_start(Me, All, Judge, Size) -> pinger_loop(Me, All, Judge, Size, 0, rand:mwc59_seed(Me * 7919 + 1)).

pinger_loop(Me, All, Judge, Size, Ponged, Random) ->
    receive
        {ping, From} -> From ! pong, pinger_loop(Me, All, Judge, Size, Ponged, Random);
        pong when Ponged + 1 =:= Size -> Judge ! {ponged, Size}, pinger_loop(Me, All, Judge, Size, Size, Random);
        pong -> pinger_loop(Me, All, Judge, Size, Ponged + 1, ping_random(Me, All, Random));
        go -> pinger_loop(Me, All, Judge, Size, Ponged, ping_random(Me, All, Random))
    end.

ping_random(Me, All, Random) ->
    Next = rand:mwc59(Random),
    case rand:mwc59_value32(Next) rem ?PINGERS + 1 of
        Me -> ping_random(Me, All, Next);
        Other -> element(Other, All) ! {ping, self()}, Next
    end.

%% ---- forkjoin: ten thousand processes get a hundred messages each ----

-define(JOINERS, 10000).

forkjoin(Size) ->
    Main = self(),
    Joiners = [spawn_link(fun() -> join(Main, Size, 0) end) || _ <- lists:seq(1, ?JOINERS)],
    settle(),
    Watch = start(),
    spawn_link(fun() -> fork(Joiners, Size) end),
    Total = lists:sum([receive {joined, N} -> N end || _ <- Joiners]),
    Result = stop(Watch, ?JOINERS * Size),
    expect("messages", Total, ?JOINERS * Size),
    Result.

fork(_, 0) -> ok;
fork(Joiners, Left) -> _ = [Joiner ! 1 || Joiner <- Joiners], fork(Joiners, Left - 1).

join(Main, Seen, Seen) -> Main ! {joined, Seen};
join(Main, Size, Seen) -> receive N -> join(Main, Size, Seen + N) end.
