%% bench_processes.erl - the benchmarks of starting, waking and sleeping processes.
-module(bench_processes).
-export([spawn/1, skynet/1, idle/1, wake/1, yield/1, timers/1]).
-import(bench, [start/0, stop/2, expect/3, percentiles/1, resident/0, settle/0]).
-compile({no_auto_import, [spawn/1, yield/1]}).

%% ---- spawn: a million short-lived processes, counted without a shared cache line ----

spawn(Size) ->
    Ran = counters:new(1, [write_concurrency]),
    settle(),
    Watch = start(),
    erlang:spawn_link(fun() -> create(Ran, Size) end),
    wait_count(Ran, Size),
    Result = stop(Watch, Size),
    expect("processes", counters:get(Ran, 1), Size),
    Result.

create(_, 0) -> ok;
create(Ran, Left) ->
    erlang:spawn(fun() -> counters:add(Ran, 1, 1) end),
    create(Ran, Left - 1).

wait_count(Counter, Count) ->
    case counters:get(Counter, 1) < Count of
        true -> receive after 1 -> wait_count(Counter, Count) end;
        false -> ok
    end.

%% ---- skynet: a leaf sends its number up, a node the sum of its ten children ----

skynet(Size) ->
    Main = self(),
    settle(),
    Watch = start(),
    erlang:spawn_link(fun() -> tree(Main, 0, Size) end),
    Sum = receive N -> N end,
    Result = #{took := Took} = stop(Watch, (Size * 10 - 1) div 9),
    expect("the sum", Sum, Size * (Size - 1) div 2),
    Result#{value := Took / 1.0e6, unit := "ms"}.

tree(Up, First, 1) -> Up ! First;
tree(Up, First, Count) ->
    Me = self(),
    Below = Count div 10,
    branch(Me, First, Below, 10),
    Up ! sum(10, 0).

branch(_, _, _, 0) -> ok;
branch(Me, First, Below, Left) ->
    erlang:spawn(fun() -> tree(Me, First, Below) end),
    branch(Me, First + Below, Below, Left - 1).

sum(0, Sum) -> Sum;
sum(Left, Sum) -> receive N -> sum(Left - 1, Sum + N) end.

%% ---- idle: a million processes that have run once and wait ----

idle(Size) ->
    Ran = counters:new(1, [write_concurrency]),
    Alive = erlang:system_info(process_count),
    settle(),
    Before = resident(),
    Watch = start(),
    Main = self(),
    erlang:spawn_link(fun() -> make_idle(Main, Ran, Size) end),
    Last = receive {last, Pid} -> Pid end,
    wait_count(Ran, Size),
    Result = stop(Watch, Size),
    settle(),
    Grown = resident() - Before,
    expect("processes", erlang:system_info(process_count), Alive + Size),
    Last ! {self(), 7}, % checks that a process receives
    expect("the answer", receive N -> N end, 7),
    Result#{value := Grown / Size, unit := "bytes"}.

make_idle(Main, Ran, Left) ->
    Pid = erlang:spawn(fun() -> counters:add(Ran, 1, 1), receive {From, N} -> From ! N end end),
    case Left of
        1 -> Main ! {last, Pid};
        _ -> make_idle(Main, Ran, Left - 1)
    end.

%% ---- wake: a foreign thread sends to an idle process ----

wake(Size) ->
    settle(),
    Watch = start(),
    ok = bench_outside:send_later(self(), Size, 500000),
    Late = woken(Size, []),
    Result = stop(Watch, Size),
    expect("messages", length([N || N <- Late, N > 0]), Size),
    {Median, Fields} = percentiles(Late),
    Result#{value := Median, unit := "us p50", extra := Fields}.

%% The thread waits for the answer before it sleeps again.
woken(0, Late) -> Late;
woken(Left, Late) ->
    receive SentAt -> woken(Left - 1, [bench_outside:seen(SentAt) | Late]) end.

%% ---- yield ----

-define(YIELDERS, 10000).

yield(Size) ->
    Main = self(),
    Yielders = [erlang:spawn_link(fun() -> receive go -> yield(Main, Size, 0) end end)
                || _ <- lists:seq(1, ?YIELDERS)],
    settle(),
    Watch = start(),
    [Yielder ! go || Yielder <- Yielders],
    Total = lists:sum([receive {yielded, N} -> N end || _ <- Yielders]),
    Result = stop(Watch, ?YIELDERS * Size),
    expect("yields", Total, ?YIELDERS * Size),
    Result.

yield(Main, Size, Size) -> Main ! {yielded, Size};
yield(Main, Size, Done) -> erlang:yield(), yield(Main, Size, Done + 1).

%% ---- timers: in whole milliseconds, the resolution of Erlang ----

timers(Size) ->
    Main = self(),
    settle(),
    Watch = start(),
    [erlang:spawn_link(fun() -> sleep_once(Main, I) end) || I <- lists:seq(1, Size)],
    Late = [receive {late, N} -> N end || _ <- lists:seq(1, Size)],
    Result = #{cpu_ms := Cpu} = stop(Watch, Size),
    expect("timers that came early", length([N || N <- Late, N < 0]), 0),
    {_, Fields} = percentiles(Late),
    Result#{value := Cpu, unit := "ms cpu", extra := Fields}.

sleep_once(Main, I) ->
    Span = rand:mwc59_value32(rand:mwc59(rand:mwc59_seed(I))) rem 1000,
    Due = erlang:monotonic_time(nanosecond) + Span * 1000000,
    receive after Span -> Main ! {late, erlang:monotonic_time(nanosecond) - Due} end.
