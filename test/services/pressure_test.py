"""pressure_test KV HTTP CHAT FAILING_ALLOC - the services with clients that use up resources, and during their stop.

Limits are set low on the command line, and the tests wait for what must happen, not for a time.
"""
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import unittest

import running
from kv_test import reply, request

KV = HTTP = CHAT = FAILING = None
MB = 1 << 20
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def descriptors(service):
    return len(os.listdir(f"/proc/{service.process.pid}/fd"))


def count_rest(client):
    """Returns the number of bytes until the other side closes."""
    count, room = len(client.rest), bytearray(1 << 20)
    client.rest = b""
    while True:
        try:
            got = client.socket.recv_into(room)
        except ConnectionError:
            got = 0
        if got == 0:
            return count
        count += got


class Pressure(unittest.TestCase):
    def start(self, program, *arguments):
        self.service = running.Service(program, "--port", "0", *arguments)
        self.assertNotEqual(self.service.port, 0, self.service.first)
        self.clients = []
        return self.service

    def client(self, receive_bytes=0):
        client = running.Client(self.service.port, receive_bytes)
        self.clients.append(client)
        return client

    def tearDown(self):
        for client in getattr(self, "clients", []):
            client.close()
        if self.service.process.poll() is None:
            self.service.stop(signal.SIGKILL)

    def stops(self, number=signal.SIGTERM):
        code, complaints = self.service.stop(number)
        return code, complaints

    def value(self, size):
        c = self.client()
        c.send(request("SET", "large", b"x" * size))
        self.assertEqual(reply(c), b"OK")
        return c

    # ---- stop ----

    def test_a_long_reply_that_has_begun_arrives_whole_when_it_is_asked_to_end(self):
        size = 60 * MB if running.PLAIN else 8 * MB
        self.start(KV)
        c = self.value(size)
        c.send(request("GET", "large"))
        c.line()  # the reply has begun
        self.service.process.send_signal(signal.SIGTERM)
        self.assertEqual(count_rest(c), size + 2)
        self.assertEqual(self.service.end(), (0, ""))

    def test_no_connection_is_taken_while_a_reply_is_finished(self):
        self.start(KV)
        c = self.value(16 * MB)
        c.send(request("GET", "large"))
        c.line()
        self.service.process.send_signal(signal.SIGTERM)
        late = socket.socket()
        late.settimeout(running.PATIENCE)
        try:
            late.connect(("127.0.0.1", self.service.port))
            late.sendall(request("PING"))
            early = late.recv(100)  # in the queue of the system: served if it came before the signal, otherwise closed
        except ConnectionError:
            early = b""
        self.assertIn(early, (b"", b"+PONG\r\n"))
        self.assertEqual(count_rest(c), 16 * MB + 2)
        late.close()
        self.assertEqual(self.service.end()[0], 0)

    def test_a_second_signal_ends_it_at_once(self):
        self.start(KV, "--stop-seconds", "3600", "--write-seconds", "3600")
        c = self.value(60 * MB if running.PLAIN else 8 * MB)
        c.send(request("GET", "large"))
        c.line()  # and no more is read
        self.service.process.send_signal(signal.SIGTERM)
        try:
            self.client().all()  # the service closes the connection or never serves it,
        except ConnectionError:
            pass  # or refuses it: it has handled the first signal
        self.service.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.service.end()[0], -signal.SIGTERM)

    def test_a_reply_that_nobody_reads_is_cut_off_at_the_deadline_and_told(self):
        self.start(KV, "--stop-seconds", "1", "--write-seconds", "3600")
        c = self.value(60 * MB if running.PLAIN else 8 * MB)
        c.send(request("GET", "large"))
        c.line()
        code, complaints = self.stops()
        self.assertEqual(code, 1)
        self.assertIn("ended by force after --stop-seconds: the deadline has passed", complaints)

    # ---- clients that use up resources ----

    def test_clients_that_read_nothing_are_let_go(self):
        count = running.scale(200, 20)
        self.start(KV, "--write-seconds", "1")
        self.value(16 * MB).close()
        before = descriptors(self.service)
        held = [self.client(4096) for _ in range(count)]
        for c in held:
            c.send(request("GET", "large"))
            c.line()
        while descriptors(self.service) > before:
            select.select([], [], [], 0.02)
        c = self.client()
        c.send(request("PING"))
        self.assertEqual(reply(c), b"PONG")
        self.assertEqual(self.stops()[0], 0)

    def test_a_client_that_reads_slowly_is_served(self):
        self.start(KV, "--write-seconds", "3600")
        c = self.value(4 * MB)
        c.send(request("GET", "large"))
        c.line()
        for _ in range(4 * MB // 65536):
            self.assertEqual(c.exactly(65536), b"x" * 65536)

    def test_requests_that_do_not_come_to_an_end_are_let_go(self):
        count = running.scale(1000, 50)
        self.start(HTTP, "--request-seconds", "1")
        held = [self.client() for _ in range(count)]
        for c in held:
            c.send(GET[:10])
        open_ones = list(held)
        while open_ones:  # sending a byte now and then does not keep a connection open
            for c in open_ones:
                try:
                    c.send(b"x")
                except ConnectionError:
                    pass
            open_ones = [c for c in open_ones if not select.select([c.socket], [], [], 0)[0]]
            select.select([], [], [], 0.05)
        for c in held:
            self.assertEqual(c.all(), b"")
        c = self.client()
        c.send(GET)
        self.assertIn(b"200 OK", c.line())
        self.assertEqual(self.stops()[0], 0)

    def test_requests_that_were_begun_share_a_limit_of_memory(self):
        size, count = 4 * MB, 20
        self.start(KV, "--pending-mb", "16")
        gone = 0
        for _ in range(count):
            c = self.client()
            try:
                c.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$50000000\r\n" + b"x" * size)
            except ConnectionError:
                pass
        while gone < count - 4:
            gone = sum(1 for c in self.clients if select.select([c.socket], [], [], 0)[0])
            select.select([], [], [], 0.02)
        self.assertTrue(self.service.hears("a configured limit has been reached", count - 4))
        for c in self.clients:
            c.close()
        c = self.client()
        while True:  # the service has freed the memory of the closed connections
            c.send(request("SET", "k", b"y" * size))
            try:
                if reply(c) == b"OK":
                    break
            except AssertionError:
                c = self.client()
        self.assertEqual(self.stops()[0], 0)

    def test_connections_beyond_the_limit_are_closed_and_there_is_room_again(self):
        self.start(KV, "--connections", "10")
        ten = [self.client() for _ in range(10)]
        for c in ten:
            c.send(request("PING"))
            self.assertEqual(reply(c), b"PONG")
        self.assertEqual(self.client().all(), b"")
        ten[0].close()
        while True:
            c = self.client()
            try:
                c.send(request("PING"))
                self.assertEqual(reply(c), b"PONG")
                break
            except (AssertionError, ConnectionError):
                continue
        self.assertEqual(self.stops()[0], 0)

    # ---- replies are sent before the end ----

    def test_what_was_answered_is_sent_although_the_next_request_fails(self):
        self.start(KV)
        c = self.client()
        c.send(request("PING") + request("ECHO", "two") + request("DEBUG", "PANIC") + request("PING"))
        self.assertEqual(c.all(), b"+PONG\r\n$3\r\ntwo\r\n")
        self.assertTrue(self.service.hears("a connection failed", 1))
        self.assertEqual(self.stops()[0], 0)
        self.start(HTTP)
        c = self.client()
        c.send(GET + GET.replace(b"/ ", b"/crash ", 1) + GET)
        self.assertEqual(c.all().count(b"200 OK"), 1)

    # ---- stderr that is not read ----

    def test_a_full_stderr_stops_neither_the_service_nor_its_end(self):
        read_end, write_end = os.pipe()
        fcntl.fcntl(write_end, 1031, 4096)  # F_SETPIPE_SZ
        process = subprocess.Popen([KV, "--port", "0"], stdout=subprocess.PIPE, stderr=write_end, text=True)
        self.service = type("Plain", (), {"process": process, "port": int(process.stdout.readline().split(":")[1])})()
        os.close(write_end)
        self.clients = []
        for _ in range(300):  # for each connection the service writes a line of 44 bytes
            c = self.client()
            c.send(request("DEBUG", "PANIC"))
            self.assertEqual(c.all(), b"")
        c = self.client()
        c.send(request("PING"))
        self.assertEqual(reply(c), b"PONG")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(running.PATIENCE), 0)
        with os.fdopen(read_end, "rb") as pipe:
            self.assertIn(b"a connection failed", pipe.read())
        process.stdout.close()

    # ---- memory that runs out ----

    @unittest.skipUnless(running.PLAIN, "a sanitizer has an allocator of its own")
    def test_chat_survives_allocations_that_fail(self):
        os.environ["LD_PRELOAD"], os.environ["FAIL_EVERY"] = FAILING, "200"
        try:
            self.start(CHAT)
        finally:
            del os.environ["LD_PRELOAD"], os.environ["FAIL_EVERY"]
        welcome = 0
        for i in range(300):
            try:
                c = self.client()
                c.until(b"name?\n")
                c.send(b"guest-%d\n" % i)
                c.until(b"leaves\n")
                c.send(b"hello everybody, this is a line that needs memory of its own\n/quit\n")
                c.all()
                welcome += 1
            except (AssertionError, ConnectionError):
                pass  # an allocation for this connection failed
            c.close()
            self.assertIsNone(self.service.process.poll(), self.service.said)
        self.assertGreater(welcome, 100)
        self.assertNotIn("giving up", self.service.said)


if __name__ == "__main__":
    KV, HTTP, CHAT, FAILING = (sys.argv.pop(1) for _ in range(4))
    unittest.main(verbosity=1)
