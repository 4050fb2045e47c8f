/* list.h - the programs: name, function, variant, default of --size, --size of the test, and one operation.
 * bench/CMakeLists.txt makes a test from each line. */
#ifndef PROGRAMS_LIST_H
#define PROGRAMS_LIST_H

/* clang-format off */
#define PROGRAMS(X)                                                       \
    X(chameneos, chameneos, 0, 300000, 500, "meeting")                    \
    X(philosophers, philosophers, 0, 20000, 20, "meal")                   \
    X(bank, bank, 0, 500000, 1000, "transfer")                            \
    X(dictionary, dictionary, 0, 1000000, 2000, "request")                \
    X(sieve, sieve, 0, 20000, 200, "number passed on")                    \
    X(logistic, logistic, 0, 100000, 100, "term")                         \
    X(pubsub, pubsub, 0, 2000, 3, "delivery")                             \
    X(request0, request, 0, 500000, 500, "round trip")                    \
    X(request24, request, 24, 500000, 500, "round trip")                  \
    X(request64, request, 64, 500000, 500, "round trip")                  \
    X(request1k, request, 1024, 300000, 500, "round trip")                \
    X(request64k, request, 65536, 20000, 50, "round trip")                \
    X(pipeline, pipeline, 0, 300000, 1000, "item and stage")              \
    X(pipeline_yield, pipeline, 1, 300000, 1000, "item and stage")        \
    X(send_free, bounded, 0, 2000000, 1000, "message")                    \
    X(send_limited, bounded, 1, 2000000, 1000, "message")                 \
    X(yield_free, bounded, 2, 1000000, 1000, "message")                   \
    X(yield_limited, bounded, 3, 1000000, 1000, "message")                \
    X(crowd1k, crowd, 1000, 400000, 2000, "message")                      \
    X(crowd10k, crowd, 10000, 400000, 10000, "message")                   \
    X(crowd100k, crowd, 100000, 400000, 100000, "message")                \
    X(backlog, backlog, 0, 2000000, 10000, "number")                      \
    X(skewed, skewed, 0, 100000, 500, "task")                             \
    X(outside_spawn, outside_spawn, 0, 400000, 1000, "process")           \
    X(outside_send, outside_send, 0, 2000000, 2000, "message")            \
    X(timers_at, timers_busy, 50000, 1000, 50, "wake-up")                \
    X(timers_over, timers_busy, 400000, 1000, 50, "wake-up")             \
    X(tasks, tasks, 0, 200000, 500, "task")                               \
    X(probe_out_churn, probe_outside, 0, 1000, 20, "probe")               \
    X(probe_out_50, probe_outside, 50, 1000, 20, "probe")                 \
    X(probe_out_80, probe_outside, 80, 1000, 20, "probe")                 \
    X(probe_in_churn, probe_inside, 0, 1000, 20, "probe")                 \
    X(probe_in_50, probe_inside, 50, 1000, 20, "probe")                   \
    X(probe_in_80, probe_inside, 80, 1000, 20, "probe")                   \
    X(memory_queued, memory_queued, 0, 500000, 1000, "process")           \
    X(memory_kept, memory_kept, 0, 500000, 1000, "process")               \
    X(groups_many, groups_many, 0, 20000, 500, "join and leave")          \
    X(groups_one, groups_one, 0, 20000, 500, "join and leave")            \
    X(names, names, 0, 400000, 800, "register, find, unregister")         \
    X(echo100, echo, 100, 200000, 500, "round trip")                      \
    X(echo10k, echo, 10000, 200000, 400, "round trip")                    \
    X(accepts, accepts, 0, 10000, 300, "connection")

/* The programs in PROGRAMS_IN_LUA exist only in a build with Lua. */
#ifdef PROGRAMS_LUA
#define PROGRAMS_IN_LUA(X)                                                \
    X(lua_table, lua_table, 0, 200000, 200, "round trip")                 \
    X(lua_spawn, lua_spawn, 0, 200000, 200, "process")
#else
#define PROGRAMS_IN_LUA(X)
#endif
/* clang-format on */

#endif
