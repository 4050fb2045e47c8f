%% bench.erl - the twelve benchmarks on Erlang: arguments, stopwatch, checks, one line of JSON.
%%
%%     erl +S 2:2 +P 4000000 -noshell -pa FOLDER -run bench main FOLDER NAME [--run K] [--size N]
%%
%% NAME may also be a program of the second suite, NAME.IDIOM (bench_suite.erl); "programs" prints the names of those.
%%
%% A process is a process, a mailbox its mailbox; messages are copied, small integers cost nothing to copy.
%% FOLDER is where the compiled modules and bench_outside.so are.
-module(bench).
-export([main/1]).
-export([start/0, stop/2, expect/3, percentiles/1, resident/0, settle/0]).

%% Name, default of --size, and module of each benchmark. The function of a benchmark returns the value and the other
%% fields of the printed line.
benches() ->
    [{pingpong, 1000000, bench_messages},
     {ring, 2000000, bench_messages},
     {spawn, 1000000, bench_processes},
     {skynet, 1000000, bench_processes},
     {counting, 5000000, bench_messages},
     {fanin, 50000, bench_messages},
     {big, 5000, bench_messages},
     {forkjoin, 100, bench_messages},
     {idle, 1000000, bench_processes},
     {wake, 5000, bench_processes},
     {yield, 100, bench_processes},
     {timers, 100000, bench_processes}].

main([_, "programs" | _]) ->
    bench_suite:list(),
    erlang:halt(0);
main([Folder, Name | Options]) ->
    Known = [{Default, fun Module:Bench/1} || {Bench, Default, Module} <- benches(), atom_to_list(Bench) =:= Name],
    case Known ++ bench_suite:find(Name) of
        [{Default, Function}] ->
            #{run := Run, size := Size} = options(Options ++ flags(), #{run => 1, size => Default}),
            ok = bench_outside:load(Folder),
            %% The benchmark runs in a process of its own, because this process has links to the system.
            {_, Ref} = spawn_monitor(fun() -> print(hd(string:lexemes(Name, ".")), Run, Size, Function(Size)) end),
            receive
                {'DOWN', Ref, process, _, normal} -> erlang:halt(0);
                {'DOWN', Ref, process, _, {wrong, What}} -> fail(1, Name ++ ": " ++ What);
                {'DOWN', Ref, process, _, Why} -> fail(1, io_lib:format("~s: ~p", [Name, Why]))
            end;
        [] -> fail(2, "there is no benchmark '" ++ Name ++ "'")
    end;
main(_) -> usage().

%% erl takes "--size N" for a flag of its own, "-size", and ends the arguments of -run there.
flags() -> lists:append([["-" ++ atom_to_list(Flag) | Values] || {Flag, Values} <- init:get_arguments(),
                                                                 lists:member(Flag, ['-run', '-size'])]).

options([], Found) -> Found;
options(["--run", N | Rest], Found) -> options(Rest, Found#{run := number(N)});
options(["--size", N | Rest], Found) -> options(Rest, Found#{size := number(N)});
options(_, _) -> usage().

number(Text) ->
    case string:to_integer(Text) of
        {N, ""} when N > 0 -> N;
        _ -> usage()
    end.

usage() -> fail(2, "usage: peer NAME [--run K] [--size N]").

fail(Code, Text) ->
    io:format(standard_error, "erlang: ~s~n", [Text]),
    erlang:halt(Code).

%% ---- the stopwatch ----

start() ->
    {Cpu, _} = statistics(runtime),
    {erlang:monotonic_time(nanosecond), Cpu}.

%% Stops the stopwatch. Returns the fields of the printed line; the default value is ns per operation.
stop({Began, BeganCpu}, Operations) ->
    Took = erlang:monotonic_time(nanosecond) - Began,
    {Cpu, _} = statistics(runtime),
    #{took => Took, cpu_ms => Cpu - BeganCpu, operations => Operations, value => Took / Operations, unit => "ns/op",
      extra => []}.

expect(_, Want, Want) -> ok;
expect(What, Got, Want) -> exit({wrong, lists:flatten(io_lib:format("~s is ~p, not ~p", [What, Got, Want]))}).

%% Returns the median in us, and p50, p99 and max of a list of ns as fields in us.
percentiles(Samples) ->
    Sorted = list_to_tuple(lists:sort(Samples)),
    Last = tuple_size(Sorted) - 1,
    At = fun(Index) -> element(Index + 1, Sorted) / 1000 end,
    {At(tuple_size(Sorted) div 2),
     [{Name, At(trunc(Share * Last))} || {Name, Share} <- [{"p50_us", 0.5}, {"p99_us", 0.99}, {"max_us", 1.0}]]}.

print(Name, Run, Size, #{value := Value, unit := Unit, cpu_ms := Cpu, operations := Operations, extra := Extra}) ->
    Line = [io_lib:format("{\"system\":\"erlang\",\"bench\":\"~s\",\"run\":~b,\"value\":~.3f,\"unit\":\"~s\"",
                          [Name, Run, float(Value), Unit]),
            io_lib:format(",\"cpu_ms\":~.1f,\"rss_mb\":~.1f,\"workers\":~b,\"size\":~b,\"operations\":~b",
                          [float(Cpu), peak() / 1024, erlang:system_info(schedulers_online), Size, Operations]),
            [io_lib:format(",\"~s\":~.3f", [Key, float(Number)]) || {Key, Number} <- Extra], "}\n"],
    io:put_chars(Line).

%% ---- the machine ----

%% Returns the peak resident size of the program so far, in KiB.
peak() ->
    {ok, Status} = file:read_file("/proc/self/status"),
    {match, [Kib]} = re:run(Status, "VmHWM:\\s*(\\d+)", [{capture, all_but_first, list}]),
    list_to_integer(Kib).

%% Returns the present resident size of the program, in bytes.
resident() ->
    {ok, Statm} = file:read_file("/proc/self/statm"),
    [_, Pages | _] = string:lexemes(binary_to_list(Statm), " "),
    list_to_integer(Pages) * 4096.

%% Waits until the processes that were just started have become idle.
settle() -> timer:sleep(100).
