"""kv_test PROGRAM - requests to the key-value service over loopback, as redis-cli and others send them."""
import os
import random
import shutil
import subprocess
import threading
import unittest

import running


def request(*args):
    parts = [a if isinstance(a, bytes) else str(a).encode() for a in args]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def reply(client):
    """One reply: bytes, a number, None, a list, or an Exception."""
    line = client.line()[:-2]
    kind, rest = line[:1], line[1:]
    if kind == b"+":
        return rest
    if kind == b"-":
        return Exception(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"*":
        return [reply(client) for _ in range(int(rest))]
    assert kind == b"$", line
    return None if rest == b"-1" else client.exactly(int(rest) + 2)[:-2]


class Kv(running.ServiceTest, running.Common):
    def greet(self, client):
        client.send(request("PING"))
        self.assertEqual(reply(client), b"PONG")

    def ask(self, client, *args):
        client.send(request(*args))
        got = reply(client)
        return str(got) if isinstance(got, Exception) else got

    def test_commands_do_what_they_say(self):
        c = self.client()
        for args, wanted in [
                (("PING",), b"PONG"), (("ping", "there"), b"there"), (("ECHO", "x y"), b"x y"),
                (("GET", "a"), None), (("SET", "a", "1"), b"OK"), (("GET", "a"), b"1"), (("SET", "a", ""), b"OK"),
                (("GET", "a"), b""), (("EXISTS", "a", "a", "b"), 2), (("DEL", "a", "b"), 1), (("EXISTS", "a"), 0),
                (("INCR", "n"), 1), (("INCR", "n"), 2), (("DECR", "n"), 1), (("INCRBY", "n", "41"), 42),
                (("DECRBY", "n", "50"), -8), (("GET", "n"), b"-8"), (("DBSIZE",), 1), (("FLUSHALL",), b"OK"),
                (("DBSIZE",), 0), (("SELECT", "0"), b"OK"), (("COMMAND", "DOCS"), []),
                (("CONFIG", "GET", "save"), [b"save", b""]), (("CONFIG", "GET", "appendonly"), [b"appendonly", b"no"]),
                (("CONFIG", "GET", "other"), [])]:
            self.assertEqual(self.ask(c, *args), wanted, args)

    def test_mistakes_are_told_and_the_connection_goes_on(self):
        c = self.client()
        self.ask(c, "SET", "word", "abc")
        self.ask(c, "SET", "most", 2**63 - 1)
        for args, wanted in [
                (("FOO", "x"), "ERR unknown command 'FOO'"), (("\x01\r\n" + "y" * 100,), "ERR unknown command"),
                (("GET",), "ERR wrong number of arguments for 'get' command"),
                (("get", "a", "b"), "ERR wrong number of arguments for 'get' command"),
                (("SET", "a"), "ERR wrong number of arguments for 'set' command"),
                (("SET", "a", "b", "EX", "10"), "ERR syntax error"),
                (("INCR", "word"), "ERR value is not an integer or out of range"),
                (("INCR", "most"), "ERR increment or decrement would overflow"),
                (("INCRBY", "n", "1x"), "ERR value is not an integer or out of range"),
                (("INCRBY", "n", ""), "ERR value is not an integer or out of range"),
                (("SELECT", "1"), "ERR DB index is out of range"), (("CONFIG", "SET", "a", "b"), "ERR only CONFIG GET")]:
            self.assertIn(wanted, self.ask(c, *args), args)
        for number in (" 1", "1 ", "+1", "01", "0x1", "1.0", "", "99999999999999999999"):
            self.ask(c, "SET", "odd", number)
            self.assertIn("not an integer", self.ask(c, "INCR", "odd"), number)
        self.assertEqual(self.ask(c, "GET", "most"), b"%d" % (2**63 - 1))

    def test_numbers_out_of_range_are_refused_as_by_redis(self):
        c = self.client()
        wrong = "ERR value is not an integer or out of range"
        for args, wanted in [
                (("INCRBY", "n", "9999999999999999999"), wrong), (("DECRBY", "n", "9999999999999999999"), wrong),
                (("INCRBY", "n", "-9223372036854775809"), wrong), (("INCRBY", "n", "+1"), wrong), (("INCRBY", "n", "01"), wrong),
                (("INCRBY", "n", "-0"), wrong), (("INCRBY", "n", ""), wrong), (("GET", "n"), None),
                (("DECRBY", "n", "-9223372036854775808"), "ERR decrement would overflow"),
                (("INCRBY", "n", "-9223372036854775808"), -2**63),
                (("DECRBY", "n", "1"), "ERR increment or decrement would overflow"), (("INCRBY", "n", "0"), -2**63)]:
            self.assertEqual(self.ask(c, *args), wanted, args)

    def test_hello_speaks_resp_2_and_says_no_to_others(self):
        c = self.client()
        hello = self.ask(c, "HELLO")
        self.assertEqual(dict(zip(hello[::2], hello[1::2]))[b"proto"], 2)
        self.assertEqual(self.ask(c, "HELLO", "2", "SETNAME", "me", "AUTH", "default", "x"), hello)
        self.assertEqual(self.ask(c, "HELLO", "3"), "NOPROTO unsupported protocol version")
        self.assertEqual(self.ask(c, "HELLO", "x"), "ERR Protocol version is not an integer or out of range")
        self.assertIn("Syntax error in HELLO", self.ask(c, "HELLO", "2", "SETNAME"))
        self.greet(c)

    def test_keys_and_values_may_be_any_bytes(self):
        c = self.client()
        every = bytes(range(256))
        for value in (b"\r\n", b"\0", every, b"$-1\r\n", b""):
            self.assertEqual(self.ask(c, "SET", b"k" + value, value + every), b"OK")
            self.assertEqual(self.ask(c, "GET", b"k" + value), value + every)
        self.assertEqual(self.ask(c, "DBSIZE"), 5)

    def test_values_change_their_size_and_large_ones_arrive_whole(self):
        c = self.client()
        for size in (1, 100, 10, 70000, 3, 3_000_000, 0, 65536):
            value = os.urandom(size)
            self.assertEqual(self.ask(c, "SET", "v", value), b"OK")
            self.assertEqual(self.ask(c, "GET", "v"), value)

    def test_many_requests_at_once_are_answered_in_order(self):
        c = self.client()
        c.send(b"".join(request("SET", f"key {i}", i) + request("GET", f"key {i}") for i in range(5000)))
        for i in range(5000):
            self.assertEqual((reply(c), reply(c)), (b"OK", str(i).encode()))
        self.assertEqual(self.ask(c, "DBSIZE"), 5000)

    def test_long_replies_of_short_requests_are_not_gathered_in_memory(self):
        c = self.client()
        self.ask(c, "SET", "big", b"x" * 1_000_000)
        sender = threading.Thread(target=c.send, args=(request("GET", "big") * 200,))
        sender.start()
        for _ in range(200):
            self.assertEqual(len(reply(c)), 1_000_000)
        sender.join()
        if running.PLAIN:
            with open(f"/proc/{self.service.process.pid}/status") as status:
                peak = next(line for line in status if line.startswith("VmHWM"))
            self.assertLess(int(peak.split()[1]), 100_000)  # KiB; all replies together have 200 MB

    def test_a_request_may_come_byte_by_byte(self):
        c = self.client()
        for byte in request("SET", "slow", "a value\r\nwith lines") + request("GET", "slow"):
            c.send(bytes([byte]))
        self.assertEqual((reply(c), reply(c)), (b"OK", b"a value\r\nwith lines"))

    def test_requests_may_be_cut_anywhere(self):
        whole = request("SET", "cut", "12345") + request("GET", "cut")
        c = self.client()
        for at in range(1, len(whole)):
            c.send(whole[:at])
            self.greet(self.client())  # a round trip of another client, in which the service can read the first part
            c.send(whole[at:])
            self.assertEqual((reply(c), reply(c)), (b"OK", b"12345"))

    def test_words_in_a_line_are_a_request_too(self):
        c = self.client()
        c.send(b"SET  inline\tvalue\r\n\r\n\nGET inline\nPING\r\n")
        self.assertEqual([reply(c) for _ in range(3)], [b"OK", b"value", b"PONG"])

    def test_what_is_no_request_is_told_and_the_connection_ends(self):
        for bad, wanted in [
                (b"*x\r\n", "invalid multibulk length"), (b"*-1\r\n", "invalid multibulk length"),
                (b"*1025\r\n", "invalid multibulk length"), (b"*99999999999999999999\r\n", "invalid multibulk length"),
                (b"*1\r\n+OK\r\n", "expected '$'"), (b"*1\r\n$-5\r\n", "invalid bulk length"),
                (b"*1\r\n$67108865\r\n", "invalid bulk length"), (b"*1\r\n$x\r\n", "invalid bulk length"),
                (b"*1\r\n$4\r\nPINGxx", "does not end with CR LF"), (b"*1\n", "invalid multibulk length"),
                (b"*" + b"0" * 40, "invalid multibulk length"), (b"x" * 70000, "too big inline request"),
                (b"x" * 70000 + b"\n", "too big inline request"), (b"a " * 2000 + b"\n", "too many words")]:
            c = self.client()
            c.send(request("PING") + bad)
            self.assertEqual(reply(c), b"PONG")
            got = c.all().decode()
            self.assertTrue(got.startswith("-ERR Protocol error: ") and wanted in got and got.endswith("\r\n"), (bad[:20], got))

    @unittest.skipUnless(running.PLAIN, "needs much memory")
    def test_a_request_that_is_too_large_in_all_is_refused(self):
        c = self.client()
        c.send(b"*3\r\n$3\r\nDEL\r\n$67108864\r\n" + b"x" * 67108864 + b"\r\n$67108864\r\n")
        self.assertIn(b"invalid bulk length", c.all())

    def test_quit_is_answered_and_then_it_is_over(self):
        c = self.client()
        c.send(request("SET", "a", "b") + request("QUIT") + request("SET", "a", "c"))
        self.assertEqual(c.all(), b"+OK\r\n+OK\r\n")
        self.assertEqual(self.ask(self.client(), "GET", "a"), b"b")

    def test_a_client_that_ends_its_half_gets_its_answers(self):
        c = self.client()
        c.send(request("PING") * 3)
        c.half_close()
        self.assertEqual(c.all(), b"+PONG\r\n" * 3)

    def test_clients_that_vanish_disturb_nobody(self):
        c = self.client()
        self.ask(c, "SET", "big", b"x" * 5_000_000)
        for i in range(50):
            other = running.Client(self.service.port)
            other.send([request("GET", "big") * 4, request("SET", "half", "value")[:-7], b""][i % 3])
            other.reset()
        self.assertEqual(self.ask(c, "GET", "half"), None)

    def test_a_client_that_does_not_read_stops_nobody_else(self):
        c, lazy = self.client(), self.client()
        self.ask(c, "SET", "big", b"x" * 1_000_000)
        lazy.send(request("GET", "big") * 50)
        for _ in range(100):
            self.greet(c)
        for _ in range(50):
            self.assertEqual(len(reply(lazy)), 1_000_000)  # and its answers are still there

    def test_a_connection_that_fails_takes_nobody_with_it(self):
        self.failures = 3
        c = self.client()
        self.ask(c, "SET", "a", "b")
        for _ in range(3):
            other = self.client()
            other.send(request("PING") + request("DEBUG", "PANIC") + request("PING"))
            other.all()
        self.assertEqual(self.ask(c, "GET", "a"), b"b")
        self.greet(self.client())

    def test_counting_from_many_connections_loses_nothing(self):
        clients = [self.client() for _ in range(20)]
        for client in clients:
            client.send(request("INCR", "n") * 500)
        seen = [reply(client) for client in clients for _ in range(500)]
        self.assertEqual(sorted(seen), list(range(1, 10001)))

    def test_keys_come_and_go_in_every_order(self):
        c, there = self.client(), {}
        for i in range(running.scale(20000, 5000)):
            key = b"%d" % (i * 7919 % 3001)
            if i % 3 == 2:
                c.send(request("DEL", key))
                there.pop(key, None)
            else:
                c.send(request("SET", key, i))
                there[key] = b"%d" % i
            if i % 100 == 99:
                for _ in range(100):
                    reply(c)
        self.assertEqual(self.ask(c, "DBSIZE"), len(there))
        c.send(b"".join(request("GET", b"%d" % i) for i in range(3001)))
        for i in range(3001):
            self.assertEqual(reply(c), there.get(b"%d" % i))

    def test_bytes_that_mean_nothing_never_stop_it(self):
        dice = random.Random(1)
        pieces = [b"*", b"$", b"\r\n", b"\n", b"-", b"1", b"3", b"9" * 9, b"GET", b"SET", b" ", b"\0", b"k"]
        for _ in range(running.scale(300, 30)):
            c = running.Client(self.service.port)
            c.send(b"".join(dice.choice(pieces) for _ in range(dice.randrange(1, 60))))
            c.half_close()
            c.all()
            c.close()
        self.greet(self.client())

    @unittest.skipUnless(shutil.which("redis-cli") and shutil.which("redis-benchmark"), "no redis-tools here")
    def test_redis_cli_and_redis_benchmark_work_with_it(self):
        port = str(self.service.port)
        cli = subprocess.run(["redis-cli", "-p", port], input="set a 1\nincr a\nget a\nget none\n", text=True,
                             capture_output=True, timeout=running.PATIENCE)
        self.assertEqual(cli.stdout.split(), ["OK", "2", "2"])
        bench = subprocess.run(["redis-benchmark", "-p", port, "-t", "ping,set,get,incr", "-n", "2000", "-P", "16", "-q"],
                               capture_output=True, text=True, timeout=running.PATIENCE)
        self.assertEqual((bench.returncode, bench.stdout.count("requests per second")), (0, 5), bench.stdout + bench.stderr)


if __name__ == "__main__":
    running.main()
