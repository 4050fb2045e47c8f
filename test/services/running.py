"""running - starts a service for its tests: the real program, on a port chosen by the system, and sockets to it.

Nothing here waits by the clock: reads wait for bytes, ends wait for the process, and both fail after PATIENCE seconds.
"""
import ctypes
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest

PATIENCE = 60
TEST = os.getpid()
PLAIN = os.environ.get("FILCH_TEST_SCALE", "100") == "100"  # no sanitizer, which needs memory and time of its own


def scale(full, least):
    """Returns the scaled length of a loop."""
    return max(least, full * int(os.environ.get("FILCH_TEST_SCALE", "100")) // 100)


def die_with_parent():
    """For preexec_fn: a server ends when its test does, also when that is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != TEST:
        os._exit(1)


def fill(writer):
    """Fills the pipe. Its flags are not changed, because the service would inherit them."""
    other = os.open(f"/proc/self/fd/{writer}", os.O_WRONLY | os.O_NONBLOCK)
    for size in (4096, 1):
        try:
            while True:
                os.write(other, b"." * size)
        except BlockingIOError:
            pass
    os.close(other)


class Client:
    """One connection, with a buffer of bytes that were read ahead."""

    def __init__(self, port, receive_bytes=0):
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def send(self, data):
        self.socket.sendall(data)

    def more(self):
        """Returns some more bytes; b"" at the end, also after a reset."""
        try:
            return self.socket.recv(65536)
        except ConnectionError:
            return b""

    def exactly(self, size):
        while len(self.rest) < size:
            got = self.more()
            if not got:
                raise AssertionError(f"the connection ended after {self.rest!r}")
            self.rest += got
        got, self.rest = self.rest[:size], self.rest[size:]
        return got

    def until(self, end):
        while end not in self.rest:
            got = self.more()
            if not got:
                raise AssertionError(f"the connection ended after {self.rest!r}")
            self.rest += got
        size = self.rest.index(end) + len(end)
        return self.exactly(size)

    def line(self):
        return self.until(b"\n")

    def all(self):
        """Returns everything until the other side closes."""
        while True:
            got = self.more()
            if not got:
                break
            self.rest += got
        got, self.rest = self.rest, b""
        return got

    def wait_for_end(self):
        """Until the other side has ended, or reset, with what it wrote still to be read."""
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP)
        if not poll.poll(PATIENCE * 1000):
            raise AssertionError("the connection does not end")

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self):
        """Closes so that the other side gets a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()


class Service:
    """The program, from its start to its end."""

    def __init__(self, program, *arguments):
        self.process = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        preexec_fn=die_with_parent)
        self.said, self.changed = "", threading.Condition()  # what it complained about so far
        self.listener = threading.Thread(target=self.listen)
        self.listener.start()
        self.first = self.process.stdout.readline()
        found = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", self.first)
        self.port = int(found[1]) if found else 0

    def listen(self):
        for line in self.process.stderr:
            with self.changed:
                self.said += line
                self.changed.notify_all()

    def hears(self, text, count):
        """Waits until stderr has that many lines with the text."""
        with self.changed:
            return self.changed.wait_for(lambda: self.said.count(text) >= count, PATIENCE)

    def stop(self, number=signal.SIGTERM):
        """Sends SIGTERM. Returns (exit code, stderr)."""
        self.process.send_signal(number)
        return self.end()

    def end(self):
        code = self.process.wait(PATIENCE)
        self.listener.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code, self.said


class ServiceTest(unittest.TestCase):
    """One service for each test; it must exit with 0, and report no more failures than the test expects."""
    program = None
    failures = 0

    def setUp(self):
        self.service = Service(self.program, "--port", "0")
        self.assertNotEqual(self.service.port, 0, self.service.first)
        self.clients = []

    def client(self, receive_bytes=0):
        client = Client(self.service.port, receive_bytes)
        self.clients.append(client)
        return client

    def tearDown(self):
        for client in self.clients:
            client.close()
        self.service.hears("a connection failed", self.failures)
        code, complaints = self.service.stop()
        self.assertEqual((code, complaints.count("a connection failed")), (0, self.failures), complaints)


class Common:
    """Tests for every service; mixed into the tests of each."""

    def test_a_port_that_is_taken_is_told_and_is_an_error(self):
        second = Service(self.program, "--port", str(self.service.port))
        code, complaints = second.end()
        self.assertEqual((code, second.first), (1, ""))
        self.assertEqual(complaints.count(f"127.0.0.1:{self.service.port}: the address is in use"), 1, complaints)

    def test_options_that_mean_nothing_are_refused(self):
        for arguments in (["--port"], ["--port", "65536"], ["--port", "x"], ["--port", "-1"], ["--verbose", "1"]):
            other = Service(self.program, *arguments)
            code, complaints = other.end()
            self.assertEqual((code, other.first), (2, ""), arguments)
            self.assertIn("usage:", complaints)
            expected = "there is no option '--verbose'" if arguments[0] == "--verbose" else "--port must be a whole number from 0 to 65535, not "
            self.assertIn(expected, complaints)

    def test_both_signals_stop_it_with_connections_open(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            other = Service(self.program, "--port", "0")
            clients = [Client(other.port) for _ in range(10)]
            self.greet(clients[0])
            self.assertEqual(other.stop(number), (0, ""))
            for client in clients:
                client.all()  # every one of them is closed
                client.close()

    def test_it_listens_again_on_the_port_it_had(self):
        code, _ = self.service.stop()
        self.assertEqual(code, 0)
        self.service = Service(self.program, "--port", str(self.service.port))
        self.assertIn("listening on", self.service.first)
        self.greet(self.client())

    def test_a_full_stdout_delays_neither_its_start_nor_its_end(self):
        reader, writer = os.pipe()
        fill(writer)
        other = subprocess.Popen([self.program, "--port", "0", "--stop-seconds", "1"], stdout=writer, stderr=subprocess.PIPE,
                                 text=True, preexec_fn=die_with_parent)
        self.assertRegex(other.stderr.readline(), r"^listening on 127\.0\.0\.1:\d+\n$")  # stdout is full
        other.send_signal(signal.SIGTERM)
        self.assertEqual(other.wait(PATIENCE), 0)
        self.assertEqual(other.stderr.read(), "")
        other.stderr.close(), os.close(reader), os.close(writer)

    def test_a_thousand_connections_come_and_go(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
        clients = [Client(self.service.port) for _ in range(1000)]
        self.greet(clients[0])
        for i, client in enumerate(clients):
            client.reset() if i % 2 else client.close()
        self.greet(self.client())


def main():
    ServiceTest.program = sys.argv.pop(1)
    unittest.main(module="__main__", verbosity=1)
