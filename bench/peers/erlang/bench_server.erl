%% bench_server.erl - a gen_server whose state and requests are handled by a function: (Request, State) -> {Reply, State}.
-module(bench_server).
-behaviour(gen_server).
-export([start/2, init/1, handle_call/3, handle_cast/2]).

start(Function, State) ->
    {ok, Pid} = gen_server:start_link(?MODULE, {Function, State}, []),
    Pid.

init(State) -> {ok, State}.

handle_call(Request, _, {Function, State}) ->
    {Reply, Next} = Function(Request, State),
    {reply, Reply, {Function, Next}}.

handle_cast(_, State) -> {noreply, State}.
