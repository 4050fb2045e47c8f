%% bench_suite_talk.erl - the programs in which processes ask each other for something.
-module(bench_suite_talk).
-export([chameneos/1, philosophers/1, bank/2, dictionary/2, sieve/1, logistic/2, pubsub/1, request/3, table/2]).
-import(bench, [start/0, stop/2, expect/3, settle/0]).
-import(bench_suite, [group/2, random/1]).

%% ---- chameneos ----

-define(CREATURES, 100).

chameneos(Size) ->
    Mall = spawn_link(fun() -> mall(Size) end),
    settle(),
    Watch = start(),
    Met = group(?CREATURES, fun(Index) -> creature(Mall, Index rem 3, 0) end),
    Result = stop(Watch, Size),
    expect("meetings", Met, 2 * Size),
    Result.

mall(0) -> receive {From, _} -> From ! {met, over}, mall(0) end;
mall(Left) ->
    receive {A, ColourA} ->
        receive {B, ColourB} ->
            A ! {met, ColourB},
            B ! {met, ColourA},
            mall(Left - 1)
        end
    end.

creature(Mall, Colour, Met) ->
    Mall ! {self(), Colour},
    receive
        {met, over} -> Met;
        {met, Colour} -> creature(Mall, Colour, Met + 1);
        {met, Other} -> creature(Mall, 3 - Colour - Other, Met + 1)
    end.

%% ---- philosophers ----

-define(SEATS, 20).

philosophers(Size) ->
    Forks = list_to_tuple([spawn_link(fun fork/0) || _ <- lists:seq(1, ?SEATS)]),
    settle(),
    Watch = start(),
    Meals = group(?SEATS, fun(Index) ->
        Other = (Index + 1) rem ?SEATS,
        philosopher(element(min(Index, Other) + 1, Forks), element(max(Index, Other) + 1, Forks), Size, 0)
    end),
    Result = stop(Watch, ?SEATS * Size),
    expect("meals", Meals, ?SEATS * Size),
    Result.

fork() ->
    receive {take, From} ->
        From ! granted,
        receive put -> fork() end
    end.

philosopher(_, _, 0, Meals) -> Meals;
philosopher(First, Second, Left, Meals) ->
    First ! {take, self()},
    receive granted -> ok end,
    Second ! {take, self()},
    receive granted -> ok end,
    First ! put,
    Second ! put,
    philosopher(First, Second, Left - 1, Meals + 1).

%% ---- bank ----

-define(ACCOUNTS, 1000).
-define(TELLERS, 100).
-define(FIRST_BALANCE, 1000).

bank(Idiom, Size) ->
    Each = Size div ?TELLERS + 1,
    Bank = case Idiom of
        plain -> list_to_tuple([spawn_link(fun() -> account(?FIRST_BALANCE) end) || _ <- lists:seq(1, ?ACCOUNTS)]);
        ets ->
            Table = ets:new(accounts, [public, {write_concurrency, true}]),
            ets:insert(Table, [{Index, ?FIRST_BALANCE} || Index <- lists:seq(1, ?ACCOUNTS)]),
            Table
    end,
    settle(),
    Watch = start(),
    Done = group(?TELLERS, fun(Index) -> teller(Bank, Each, 7919 * (Index + 1), 0) end),
    Result = stop(Watch, ?TELLERS * Each),
    expect("transfers", Done, ?TELLERS * Each),
    expect("money", money(Bank), ?ACCOUNTS * ?FIRST_BALANCE),
    Result.

money(Bank) when is_tuple(Bank) ->
    group(?ACCOUNTS, fun(Index) ->
        element(Index + 1, Bank) ! {close, self()},
        receive {balance, Balance} -> Balance end
    end);
money(Table) -> ets:foldl(fun({_, Balance}, Sum) -> Sum + Balance end, 0, Table).

account(Balance) ->
    receive
        {debit, From, _, Amount} when Amount > Balance -> From ! refused, account(Balance);
        {debit, From, To, Amount} -> To ! {credit, From, Amount}, account(Balance - Amount);
        {credit, From, Amount} -> From ! done, account(Balance + Amount);
        {close, From} -> From ! {balance, Balance}
    end.

teller(_, 0, _, Done) -> Done;
teller(Bank, Left, State, Done) ->
    A = random(State), B = random(A), C = random(B),
    From = A rem ?ACCOUNTS,
    To = (From + 1 + B rem (?ACCOUNTS - 1)) rem ?ACCOUNTS,
    transfer(Bank, From + 1, To + 1, 1 + C rem 100),
    teller(Bank, Left - 1, C, Done + 1).

transfer(Bank, From, To, Amount) when is_tuple(Bank) ->
    element(From, Bank) ! {debit, self(), element(To, Bank), Amount},
    receive done -> ok; refused -> ok end;
%% A table has one counter per account. Between the two updates of a transfer the amount is in neither account.
transfer(Table, From, To, Amount) ->
    case ets:update_counter(Table, From, -Amount) < 0 of
        true -> ets:update_counter(Table, From, Amount);
        false -> ets:update_counter(Table, To, Amount)
    end.

%% ---- dictionary ----

-define(CLIENTS, 64).
-define(KEYS, 10000).

dictionary(Idiom, Size) ->
    Each = Size div ?CLIENTS + 1,
    Ask = case Idiom of
        plain ->
            Server = spawn_link(fun() -> dictionary_loop({#{}, 0}) end),
            fun(Request) -> Server ! {self(), Request}, receive {answer, Answer} -> Answer end end;
        gen_server ->
            Server = bench_server:start(fun serve/2, {#{}, 0}),
            fun(Request) -> gen_server:call(Server, Request, infinity) end;
        ets ->
            Table = ets:new(dictionary, [public, {read_concurrency, true}, {write_concurrency, true}]),
            fun({put, Key, Value}) -> ets:insert(Table, {Key, Value}), 1;
               ({get, Key}) -> case ets:lookup(Table, Key) of [{_, Value}] -> Value; [] -> none end
            end
    end,
    settle(),
    Watch = start(),
    Right = group(?CLIENTS, fun(Index) -> client(Ask, Each, 7919 * (Index + 1), 0) end),
    Result = stop(Watch, ?CLIENTS * Each),
    expect("right answers", Right, ?CLIENTS * Each),
    Result.

serve({put, Key, Value}, {Map, Puts}) -> {Puts + 1, {Map#{Key => Value}, Puts + 1}};
serve({get, Key}, {Map, _} = State) -> {maps:get(Key, Map, none), State}.

dictionary_loop(State) ->
    receive {From, Request} ->
        {Answer, Next} = serve(Request, State),
        From ! {answer, Answer},
        dictionary_loop(Next)
    end.

client(_, 0, _, Right) -> Right;
client(Ask, Left, State, Right) ->
    A = random(State), B = random(A),
    Key = A rem ?KEYS,
    Is = case B rem 10 of
        0 -> Ask({put, Key, 7 * Key + 1}) > 0;
        _ -> lists:member(Ask({get, Key}), [none, 7 * Key + 1])
    end,
    client(Ask, Left - 1, B, if Is -> Right + 1; true -> Right end).

%% ---- sieve ----

sieve(Size) ->
    Main = self(),
    {Primes, Passed} = count_primes(2, Size, [], 0, 0),
    settle(),
    Watch = start(),
    First = spawn_link(fun() -> filter(Main, 1) end),
    spawn_link(fun() -> source(First, 2, Size) end),
    Found = receive {primes, N} -> N end,
    Result = stop(Watch, Passed),
    expect("primes", Found, Primes),
    Result.

source(First, Size, Size) -> First ! over;
source(First, Number, Size) -> First ! Number, source(First, Number + 1, Size).

filter(Main, Index) -> receive Prime -> filter(Main, Index, Prime, none) end.

filter(Main, Index, Prime, Next) ->
    receive
        over when Next =:= none -> Main ! {primes, Index};
        over -> Next ! over;
        Number when Number rem Prime =:= 0 -> filter(Main, Index, Prime, Next);
        Number when Next =:= none ->
            New = spawn_link(fun() -> filter(Main, Index + 1) end),
            New ! Number,
            filter(Main, Index, Prime, New);
        Number -> Next ! Number, filter(Main, Index, Prime, Next)
    end.

%% Returns the number of primes, and the number of messages that all filters receive.
count_primes(Limit, Limit, _, Found, Passed) -> {Found, Passed + Found};
count_primes(Number, Limit, Primes, Found, Passed) ->
    case divisor(Number, lists:reverse(Primes), 1) of
        none -> count_primes(Number + 1, Limit, [Number | Primes], Found + 1, Passed + Found + 1);
        Index -> count_primes(Number + 1, Limit, Primes, Found, Passed + Index)
    end.

divisor(_, [], _) -> none;
divisor(Number, [Prime | _], Index) when Number rem Prime =:= 0 -> Index;
divisor(Number, [_ | Rest], Index) -> divisor(Number, Rest, Index + 1).

%% ---- logistic ----

-define(SERIES, 10).

logistic(Idiom, Size) ->
    Main = self(),
    settle(),
    Watch = start(),
    group(?SERIES, fun(Index) ->
        Rate = 3.46 + 0.0025 * Index,
        Next = case Idiom of
            plain ->
                Computer = spawn_link(fun() -> computer(Rate) end),
                fun(X) -> Computer ! {self(), X}, receive {term, Y} -> Y end end;
            gen_server ->
                Server = bench_server:start(fun(X, R) -> {R * X * (1 - X), R} end, Rate),
                fun(X) -> gen_server:call(Server, X, infinity) end
        end,
        Main ! {last, Rate, terms(Next, 0.5, Size)},
        1
    end),
    Result = stop(Watch, ?SERIES * Size),
    Lasts = [receive {last, Rate, Last} -> {Rate, Last} end || _ <- lists:seq(1, ?SERIES)],
    Right = length([R || {R, Last} <- Lasts, abs(Last - terms(fun(X) -> R * X * (1 - X) end, 0.5, Size)) < 1.0e-9]),
    expect("right series", Right, ?SERIES),
    Result.

computer(Rate) -> receive {From, X} -> From ! {term, Rate * X * (1 - X)}, computer(Rate) end.

terms(_, X, 0) -> X;
terms(Next, X, Left) -> terms(Next, Next(X), Left - 1).

%% ---- publish and subscribe ----

-define(TOPICS, 10).
-define(SUBSCRIBERS, 100).

pubsub(Size) ->
    Main = self(),
    Topics = [[spawn_link(fun() -> Main ! {got, subscriber(0)} end) || _ <- lists:seq(1, ?SUBSCRIBERS)]
              || _ <- lists:seq(1, ?TOPICS)],
    settle(),
    Watch = start(),
    [spawn_link(fun() -> publisher(Subscribers, Size) end) || Subscribers <- Topics],
    Got = lists:sum([receive {got, N} -> N end || _ <- lists:seq(1, ?TOPICS * ?SUBSCRIBERS)]),
    Result = stop(Watch, ?TOPICS * ?SUBSCRIBERS * Size),
    expect("deliveries", Got, ?TOPICS * ?SUBSCRIBERS * Size),
    Result.

publisher(Subscribers, 0) -> [Subscriber ! over || Subscriber <- Subscribers];
publisher(Subscribers, Left) ->
    Message = <<0:(63 * 8), 1>>,
    [Subscriber ! Message || Subscriber <- Subscribers],
    publisher(Subscribers, Left - 1).

subscriber(Got) ->
    receive
        over -> Got;
        Message -> subscriber(Got + binary:last(Message))
    end.

%% ---- request and reply with payloads ----

-define(PAIRS, 10).

request(Idiom, Bytes, Size) ->
    Each = Size div ?PAIRS + 1,
    Rest = <<0:((Bytes - 8) * 8)>>,
    settle(),
    Watch = start(),
    Answered = group(?PAIRS, fun(_) ->
        Ask = case Idiom of
            plain ->
                Server = spawn_link(fun request_loop/0),
                fun(Request) -> Server ! {self(), Request}, receive {reply, Reply} -> Reply end end;
            gen_server ->
                Server = bench_server:start(fun(Request, State) -> {reply_to(Request), State} end, none),
                fun(Request) -> gen_server:call(Server, Request, infinity) end
        end,
        ask(Ask, Rest, Each, 0)
    end),
    Result = stop(Watch, ?PAIRS * Each),
    expect("round trips", Answered, ?PAIRS * Each),
    Result.

request_loop() -> receive {From, Request} -> From ! {reply, reply_to(Request)}, request_loop() end.

%% The reply is a new binary, as in the other systems.
reply_to(<<Serial:64, Rest/binary>>) -> <<(Serial + 1):64, Rest/binary>>.

ask(_, _, 0, Serial) -> Serial;
ask(Ask, Rest, Left, Serial) ->
    <<Next:64, _/binary>> = Ask(<<Serial:64, Rest/binary>>),
    Next = Serial + 1,
    ask(Ask, Rest, Left - 1, Next).

%% ---- a structured message there and back ----

table(Idiom, Size) ->
    Main = self(),
    Partner = spawn_link(fun() -> partner() end),
    First = case Idiom of
        map -> #{id => 0, name => <<"abc">>, price => 1.5, ok => true, tag => <<"xyz">>};
        tuple -> {0, <<"abc">>, 1.5, true, <<"xyz">>}
    end,
    settle(),
    Watch = start(),
    spawn_link(fun() -> Main ! {last, pass(Partner, First, Size)} end),
    Last = receive {last, Message} -> Message end,
    Result = stop(Watch, Size),
    expect("id", if Idiom =:= map -> maps:get(id, Last); true -> element(1, Last) end, Size),
    Result.

partner() ->
    receive
        {From, #{id := Id} = Message} -> From ! {passed, Message#{id := Id + 1}}, partner();
        {From, {Id, Name, Price, Ok, Tag}} -> From ! {passed, {Id + 1, Name, Price, Ok, Tag}}, partner()
    end.

pass(_, Message, 0) -> Message;
pass(Partner, Message, Left) ->
    Partner ! {self(), Message},
    receive {passed, Next} -> pass(Partner, Next, Left - 1) end.
