"""faulty_test FAULTY - an acceptor with failing calls: no process is left over, and the count of connections is right."""
import os
import sys
import time
import unittest

import running

FAULTY = None


class Faulty(unittest.TestCase):
    def start(self, *arguments, **faults):
        os.environ.update(faults)
        try:
            self.service = running.Service(FAULTY, "--port", "0", *arguments)
        finally:
            for name in faults:
                del os.environ[name]
        self.assertNotEqual(self.service.port, 0, self.service.first)
        self.clients = []

    def tearDown(self):
        for client in self.clients:
            client.close()
        code, complaints = self.service.stop()
        self.assertEqual(code, 0, complaints)
        self.assertNotIn("a connection failed", complaints)

    def connect(self):
        """Returns a connection, and the number of live ones that it reported; None if it was closed."""
        while True:
            try:
                client = running.Client(self.service.port)
                break
            except ConnectionError:  # no process listens, because the acceptor is being started again
                pass
        self.clients.append(client)
        line = client.rest + client.more()
        while line and not line.endswith(b"\n"):
            line += client.more()
        return client, int(line.split()[1]) if line else None

    def connect_until(self, live):
        """Connects until that many live: ends are counted a little later."""
        end = time.monotonic() + running.PATIENCE
        while time.monotonic() < end:
            client, found = self.connect()
            if found == live:
                return client
            client.close()
        self.fail(f"never were {live} connections alive, but {found}")

    def test_a_connection_that_got_no_stream_does_not_live_on(self):
        self.start(FAIL_GIVE="1 2 3")
        for _ in range(3):
            self.assertIsNone(self.connect()[1])
        self.assertTrue(self.service.hears("a connection could not be served: out of memory", 3))
        self.connect_until(live=1)

    def test_a_connection_that_got_no_stream_is_not_counted(self):
        self.start("--connections", "2", FAIL_GIVE="2")
        self.assertEqual(self.connect()[1], 1)
        self.assertIsNone(self.connect()[1])
        self.connect_until(live=2)
        self.assertIsNone(self.connect()[1])  # there is room for two
        self.assertIsNone(self.connect()[1])

    def test_connections_are_still_counted_when_the_acceptor_has_been_restarted(self):
        self.start("--connections", "2", FAIL_ACCEPT="3")
        first, live = self.connect()
        self.assertEqual(live, 1)
        self.assertEqual(self.connect()[1], 2)  # the next accept fails
        while "a configured limit has been reached" not in self.service.said:
            self.assertIsNone(self.connect()[1])
        first.close()
        self.connect_until(live=2)


if __name__ == "__main__":
    FAULTY = sys.argv.pop(1)
    unittest.main(verbosity=1)
