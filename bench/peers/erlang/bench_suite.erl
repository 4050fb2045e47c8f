%% bench_suite.erl - the second suite: ordinary programs, each in the idioms that Erlang has for it. The runner names the
%% size. Erlang has no threads outside and no limited mailboxes: outside_spawn, outside_send and probe_out_* are missing,
%% and in pipeline and crowd a sender waits for an acknowledgement.
-module(bench_suite).
-export([list/0, find/1, group/2, spin/1, random/1]).

%% Name, idiom, module, function and its arguments before the size.
programs() ->
    Talk = bench_suite_talk, Flow = bench_suite_flow, Time = bench_suite_time,
    [{chameneos, plain, Talk, chameneos, []},
     {philosophers, plain, Talk, philosophers, []},
     {bank, plain, Talk, bank, [plain]},
     {bank, ets, Talk, bank, [ets]},
     {dictionary, plain, Talk, dictionary, [plain]},
     {dictionary, gen_server, Talk, dictionary, [gen_server]},
     {dictionary, ets, Talk, dictionary, [ets]},
     {sieve, plain, Talk, sieve, []},
     {logistic, plain, Talk, logistic, [plain]},
     {logistic, gen_server, Talk, logistic, [gen_server]},
     {pubsub, plain, Talk, pubsub, []},
     {pipeline, ack, Flow, pipeline, [1]},
     {pipeline, credit, Flow, pipeline, [16]},
     {pipeline_yield, credit, Flow, pipeline, [16]},
     {crowd1k, ack, Flow, crowd, [1000]},
     {crowd10k, ack, Flow, crowd, [10000]},
     {crowd100k, ack, Flow, crowd, [100000]},
     {backlog, plain, Flow, backlog, [plain]},
     {backlog, suspend, Flow, backlog, [suspend]},
     {skewed, spawn, Flow, tasks, [skewed, spawn]},
     {skewed, pool, Flow, tasks, [skewed, pool]},
     {tasks, spawn, Flow, tasks, [even, spawn]},
     {tasks, pool, Flow, tasks, [even, pool]},
     {timers_at, 'after', Time, timers, [50000]},
     {timers_over, 'after', Time, timers, [400000]},
     {probe_in_churn, plain, Time, probe_inside, [0]},
     {probe_in_50, plain, Time, probe_inside, [50]},
     {probe_in_80, plain, Time, probe_inside, [80]},
     {memory_queued, plain, Time, memory_queued, [plain]},
     {memory_queued, hibernate, Time, memory_queued, [hibernate]},
     {memory_kept, plain, Time, memory_kept, []},
     {groups_many, pg, Time, groups, [many]},
     {groups_one, pg, Time, groups, [one]},
     {names, register, Time, names, [register]},
     {names, ets, Time, names, [ets]},
     {echo100, passive, Time, echo, [100, false]},
     {echo100, active, Time, echo, [100, true]},
     {echo10k, passive, Time, echo, [10000, false]},
     {accepts, passive, Time, accepts, []},
     {lua_table, map, Talk, table, [map]},
     {lua_table, tuple, Talk, table, [tuple]},
     {lua_spawn, plain, Flow, spawns, []}]
    ++ [{Name, Idiom, Talk, request, [Idiom, Bytes]}
        || {Name, Bytes} <- [{request24, 24}, {request64, 64}, {request1k, 1024}, {request64k, 65536}],
           Idiom <- [plain, gen_server]].

entry({Name, Idiom, _, _, _}) -> atom_to_list(Name) ++ "." ++ atom_to_list(Idiom).

list() -> [io:format("~s~n", [entry(Program)]) || Program <- programs()].

%% [{default size, function of the size}], or []. There is no default size: 1.
find(Name) ->
    [{1, fun(Size) -> apply(Module, Function, Arguments ++ [Size]) end}
     || {_, _, Module, Function, Arguments} = Program <- programs(), entry(Program) =:= Name].

%% Runs Count processes and adds up their results.
group(Count, Function) ->
    Main = self(),
    Tag = make_ref(),
    [spawn_link(fun() -> Main ! {Tag, Function(Index)} end) || Index <- lists:seq(0, Count - 1)],
    collect(Tag, Count, 0).

collect(_, 0, Sum) -> Sum;
collect(Tag, Left, Sum) -> receive {Tag, Result} -> collect(Tag, Left - 1, Sum + Result) end.

%% Computes for a while.
spin(Ns) -> spin_until(erlang:monotonic_time(nanosecond) + Ns).

spin_until(End) ->
    case erlang:monotonic_time(nanosecond) >= End of
        true -> ok;
        false -> spin_until(End)
    end.

%% xorshift with 32 bits: 64 would be big numbers.
random(State) ->
    A = State bxor ((State bsl 13) band 16#ffffffff),
    B = A bxor (A bsr 17),
    B bxor ((B bsl 5) band 16#ffffffff).
