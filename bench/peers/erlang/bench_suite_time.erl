%% bench_suite_time.erl - the programs about lateness, memory, names and sockets. Erlang sleeps whole milliseconds.
-module(bench_suite_time).
-export([timers/2, probe_inside/2, memory_queued/2, memory_kept/1, groups/2, names/2, echo/3, accepts/1]).
-export([hold/1]).
-import(bench, [start/0, stop/2, expect/3, settle/0, resident/0, percentiles/1]).
-import(bench_suite, [group/2, spin/1, random/1]).

now_ns() -> erlang:monotonic_time(nanosecond).

%% Returns Result with p50, p99 and max of Samples as fields, and with p99 as its value.
with_delays(Result, Samples) ->
    {_, Fields} = percentiles(Samples),
    {_, P99} = lists:keyfind("p99_us", 1, Fields),
    Result#{value := P99, unit := "us p99", extra := Fields}.

%% ---- timers ----

-define(PERIOD, 100).

timers(Sleepers, Size) ->
    process_flag(priority, high), % otherwise the first sleepers would delay the start of the others
    Collector = spawn_link(fun() -> collector([]) end), % apart: this mailbox has a result of each sleeper
    settle(),
    Watch = start(),
    End = atomics:new(1, []), % known when all have been started
    atomics:put(End, 1, 1 bsl 62),
    Wakes = group(Sleepers, fun(Index) ->
        if Index =:= Sleepers - 1 -> atomics:put(End, 1, now_ns() + Size * 1000000); true -> ok end,
        Own = sleeper(Index rem 16 =:= 0, End, random(7919 * Index + 1) rem ?PERIOD, []),
        if Index rem 16 =:= 0 -> Collector ! {late, Own}, length(Own); true -> Own end
    end),
    Result = #{took := Took} = stop(Watch, Wakes),
    Collector ! {self(), all},
    Late = receive {all, Some} -> Some end,
    #{extra := Fields} = Whole = with_delays(Result, Late),
    Whole#{extra := Fields ++ [{"wakes_per_s", Wakes * 1.0e9 / Took}]}.

collector(All) ->
    receive
        {late, Own} -> collector(Own ++ All);
        {From, all} -> From ! {all, All}
    end.

%% Returns the lateness of each wake-up if the sleeper is sampled, otherwise the number of its wake-ups.
sleeper(true, End, Ms, Late) ->
    Due = now_ns() + Ms * 1000000,
    receive after Ms -> ok end,
    Now = now_ns(),
    case Now >= atomics:get(End, 1) of
        true -> [Now - Due | Late];
        false -> sleeper(true, End, ?PERIOD, [Now - Due | Late])
    end;
sleeper(false, End, Ms, []) -> sleeper(false, End, Ms, 0);
sleeper(false, End, Ms, Wakes) ->
    receive after Ms -> ok end,
    Now = now_ns(),
    case Now >= atomics:get(End, 1) of
        true -> Wakes + 1;
        false -> sleeper(false, End, ?PERIOD, Wakes + 1)
    end.

%% ---- probes ----

probe_inside(Percent, Size) ->
    Over = atomics:new(1, []),
    Target = spawn_link(fun target/0),
    load(Percent, Over),
    timer:sleep(20),
    Watch = start(),
    Main = self(),
    spawn_link(fun() -> Main ! {delays, prober(Target, now_ns() + 1000000, Size, [], [])} end),
    {Delays, Wakes} = receive {delays, Both} -> Both end,
    Result = stop(Watch, Size),
    atomics:put(Over, 1, 1),
    expect("probes", length(Delays), Size),
    {_, Fields} = percentiles(Wakes),
    #{extra := Extra} = Whole = with_delays(Result, Delays),
    Whole#{extra := Extra ++ [{"wake_" ++ Name, Value} || {Name, Value} <- Fields]}.

target() -> receive {From, probe} -> From ! seen, target() end.

sleep_until(Due) ->
    case Due - now_ns() of
        Span when Span > 0 -> receive after (Span + 999999) div 1000000 -> ok end;
        _ -> erlang:yield()
    end.

prober(_, _, 0, Delays, Wakes) -> {Delays, Wakes};
prober(Target, Due, Left, Delays, Wakes) ->
    sleep_until(Due),
    Wake = now_ns() - Due,
    Target ! {self(), probe},
    receive seen -> ok end,
    prober(Target, Due + 1000000, Left - 1, [now_ns() - Due | Delays], [Wake | Wakes]).

load(0, Over) -> [spawn(fun() -> churn(Over) end) || _ <- lists:seq(1, 200)];
load(Percent, Over) ->
    Period = 100 * 20000 * 100 div (Percent * 2),
    Now = now_ns(),
    [spawn(fun() -> worker(Over, Now + Index * Period div 100, Period) end) || Index <- lists:seq(0, 99)].

churn(Over) ->
    spin(5000),
    case atomics:get(Over, 1) of
        0 -> spawn(fun() -> churn(Over) end);
        1 -> ok
    end.

worker(Over, Due, Period) ->
    sleep_until(Due),
    spin(20000),
    case atomics:get(Over, 1) of
        0 -> worker(Over, Due + Period, Period);
        1 -> ok
    end.

%% ---- memory ----

%% Starts processes that wait for `start`; each has a number as unread message in its mailbox.
grow(Idiom, Size) ->
    Main = self(),
    settle(),
    Before = resident(),
    Watch = start(),
    Pids = [spawn_link(fun() ->
        if Idiom =:= hibernate -> erlang:hibernate(?MODULE, hold, [Main]); true -> hold(Main) end
    end) || _ <- lists:seq(1, Size)],
    send_numbers(Pids, 0),
    settle(),
    Result = stop(Watch, Size),
    {Before, resident() - Before, Pids, Result}.

hold(Main) -> receive start -> receive {number, Number} -> Main ! {sum, Number} end end.

send_numbers([], _) -> ok;
send_numbers([Pid | Rest], Number) -> Pid ! {number, Number}, send_numbers(Rest, Number + 1).

shrink(Pids, Size) ->
    [Pid ! start || Pid <- Pids],
    Sum = lists:foldl(fun(_, Sum) -> receive {sum, N} -> Sum + N end end, 0, Pids),
    expect("sum", Sum, Size * (Size - 1) div 2).

memory_queued(Idiom, Size) ->
    {_, Grown, Pids, Result} = grow(Idiom, Size),
    shrink(Pids, Size),
    Result#{value := Grown / Size, unit := "bytes"}.

memory_kept(Size) ->
    {Before, Grown, Pids, Result} = grow(plain, Size),
    shrink(Pids, Size),
    erlang:garbage_collect(),
    timer:sleep(1000),
    Kept = max(resident() - Before, 0),
    Result#{value := 100 * Kept / Grown, unit := "% kept", extra := [{"grown_mb", Grown / (1024 * 1024)}]}.

%% ---- groups and names ----

groups(Kind, Size) ->
    {ok, _} = pg:start_link(suite),
    Pids = case Kind of
        many -> [self()];
        one -> [spawn_link(fun() -> receive over -> ok end end) || _ <- lists:seq(1, Size)]
    end,
    Pairs = case Kind of
        many -> [{{group, Index}, hd(Pids)} || Index <- lists:seq(1, Size)];
        one -> [{group, Pid} || Pid <- Pids]
    end,
    {Last, _} = lists:last(Pairs),
    settle(),
    Watch = start(),
    [ok = pg:join(suite, Group, Pid) || {Group, Pid} <- Pairs],
    Members = length(pg:get_members(suite, Last)),
    [ok = pg:leave(suite, Group, Pid) || {Group, Pid} <- Pairs],
    Result = stop(Watch, Size),
    expect("members", Members, if Kind =:= many -> 1; true -> Size end),
    Result.

names(Idiom, Size) ->
    Each = Size div 8,
    Table = ets:new(names, [public, {write_concurrency, true}, {read_concurrency, true}]),
    settle(),
    Watch = start(),
    Found = group(8, fun(Index) -> registrar(Idiom, Table, Index, 0, Each, 0) end),
    Result = stop(Watch, 8 * Each),
    expect("found", Found, 8 * Each),
    Result.

%% In Erlang a process can have only one registered name, so each name is unregistered before the next is registered.
registrar(_, _, _, Each, Each, Found) -> Found;
registrar(register, Table, Index, Number, Each, Found) ->
    Name = list_to_atom("name " ++ integer_to_list(Index) ++ "." ++ integer_to_list(Number)),
    register(Name, self()),
    Self = whereis(Name),
    Self = self(),
    unregister(Name),
    registrar(register, Table, Index, Number + 1, Each, Found + 1);
registrar(ets, Table, Index, Number, Each, Found) ->
    true = ets:insert_new(Table, {name(Index, Number), self()}),
    [{_, Self}] = ets:lookup(Table, name(Index, Number)),
    Self = self(),
    if Number >= 1000 -> ets:delete(Table, name(Index, Number - 1000)); true -> ok end,
    registrar(ets, Table, Index, Number + 1, Each, Found + 1).

name(Index, Number) -> list_to_binary(["name ", integer_to_list(Index), ".", integer_to_list(Number)]).

%% ---- sockets ----

listen(Active) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 1024},
                                        {nodelay, true}]),
    {ok, Port} = inet:port(Listener),
    spawn_link(fun() -> accept(Listener, Active) end),
    receive after 10 -> ok end,
    {Listener, Port}.

accept(Listener, Active) ->
    case gen_tcp:accept(Listener) of
        {ok, Socket} ->
            Server = spawn_link(fun() -> receive start -> server(Socket, Active) end end),
            ok = gen_tcp:controlling_process(Socket, Server),
            Server ! start,
            accept(Listener, Active);
        {error, closed} -> ok
    end.

server(Socket, false) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Bytes} -> gen_tcp:send(Socket, Bytes), server(Socket, false);
        {error, _} -> gen_tcp:close(Socket)
    end;
server(Socket, true) ->
    ok = inet:setopts(Socket, [{active, true}]),
    active(Socket).

active(Socket) ->
    receive
        {tcp, Socket, Bytes} -> gen_tcp:send(Socket, Bytes), active(Socket);
        {tcp_closed, Socket} -> ok
    end.

connect(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    Socket.

ask(_, 0, Done) -> Done;
ask(Socket, Left, Done) ->
    Request = binary:copy(<<(Done band 255)>>, 64),
    ok = gen_tcp:send(Socket, Request),
    {ok, Request} = gen_tcp:recv(Socket, 64),
    ask(Socket, Left - 1, Done + 1).

echo(Most, Active, Size) ->
    Files = list_to_integer(string:trim(os:cmd("ulimit -n"))),
    Count = lists:min([Most, Size, (Files - 64) div 2]),
    Each = Size div Count,
    {_, Port} = listen(Active),
    Main = self(),
    Pids = [begin
        Pid = spawn_link(fun() ->
            Socket = connect(Port),
            Main ! connected,
            receive start -> Main ! {rounds, ask(Socket, Each, 0)} end
        end),
        receive connected -> Pid end
    end || _ <- lists:seq(1, Count)],
    settle(),
    Watch = start(),
    [Pid ! start || Pid <- Pids],
    Rounds = lists:sum([receive {rounds, N} -> N end || _ <- Pids]),
    Result = stop(Watch, Count * Each),
    expect("round trips", Rounds, Count * Each),
    Result#{extra := [{"connections", Count}]}.

accepts(Size) ->
    Each = Size div 256 + 1,
    {_, Port} = listen(false),
    settle(),
    Watch = start(),
    Rounds = group(256, fun(_) -> visits(Port, Each, 0) end),
    Result = stop(Watch, 256 * Each),
    expect("round trips", Rounds, 256 * Each),
    Result.

visits(_, 0, Done) -> Done;
visits(Port, Left, Done) ->
    Socket = connect(Port),
    Rounds = ask(Socket, 1, 0),
    ok = gen_tcp:close(Socket),
    visits(Port, Left - 1, Done + Rounds).
