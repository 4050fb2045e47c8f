%% bench_outside.erl - the Erlang side of bench_outside.c: a thread that is not one of Erlang's own.
-module(bench_outside).
-export([load/1, send_later/3, seen/1]).
-nifs([send_later/3, seen/1]).

load(Folder) -> erlang:load_nif(filename:join(Folder, "bench_outside"), 0).

%% A thread sleeps SpanNs and sends the time to Pid, Count times; each time it waits for seen/1.
send_later(_Pid, _Count, _SpanNs) -> erlang:nif_error(not_loaded).

%% Returns how many ns ago the message was sent, and lets the thread continue.
seen(_SentAt) -> erlang:nif_error(not_loaded).
