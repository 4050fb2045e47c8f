"""beside_redis_test KV - random commands to kv and to redis-server must get identical replies."""
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import unittest

import running
from kv_test import request

KV = None
# Its children have its standard output as their standard input, so that it ends when the last of them does.
KILLED = """
import os, subprocess, sys, running
os.dup2(1, 0)
redis = subprocess.Popen(["redis-server", "--port", "0", "--save", ""], stdout=subprocess.PIPE, preexec_fn=running.die_with_parent)
service = running.Service(sys.argv[1], "--port", "0")
redis.stdout.readline()
print("begun", flush=True)
redis.wait()
"""
NUMBERS = ["0", "1", "-1", "7", "42", "-0", "+1", "007", " 1", "1 ", "", "abc", "1.5", "1e3", "9223372036854775807",
           "-9223372036854775808", "9223372036854775808", "-9223372036854775809", "9999999999999999999",
           "99999999999999999999", "-99999999999999999999", "4611686018427387904", "0x10", "--1", "-"]
KEYS = ["a", "b", "c", "n", "m"]


def raw_reply(client):
    """Returns the bytes of one reply."""
    line = client.line()
    if line[:1] == b"$" and line != b"$-1\r\n":
        return line + client.exactly(int(line[1:]) + 2)
    if line[:1] == b"*" and line != b"*-1\r\n":
        return line + b"".join(raw_reply(client) for _ in range(int(line[1:])))
    return line


def draw(rng):
    key, other, number = rng.choice(KEYS), rng.choice(KEYS), rng.choice(NUMBERS)
    return rng.choice([
        ("SET", key, number), ("SET", key, rng.choice(["", "word", "x" * 30])), ("GET", key), ("DEL", key, other),
        ("EXISTS", key, other), ("INCR", key), ("DECR", key), ("INCRBY", key, number), ("DECRBY", key, number),
        ("incrby", key, str(rng.randrange(-10**6, 10**6))), ("DBSIZE",), ("PING",), ("PING", number), ("ECHO", number),
        ("GET",), ("SET", key), ("INCRBY", key), ("HELLO", rng.choice(["1", "4", "x", "9999999999999999999"])),
    ])


@unittest.skipUnless(shutil.which("redis-server"), "there is no redis-server here to compare with: nothing was compared")
class BesideRedis(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.path = os.path.join(self.folder, "redis.sock")
        self.redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", "--dir", self.folder],
                                      stdout=subprocess.PIPE, text=True, preexec_fn=running.die_with_parent)
        said = ""
        for line in self.redis.stdout:
            said += line
            if "ready to accept connections" in line.lower() or "now ready" in line.lower():
                break
        else:
            self.fail(f"redis-server did not start: {said}")
        self.service = running.Service(KV, "--port", "0")

    def tearDown(self):
        self.redis.terminate()
        self.redis.stdout.read()
        self.redis.wait(running.PATIENCE)
        self.redis.stdout.close()
        self.service.stop()
        shutil.rmtree(self.folder)

    def test_the_servers_end_with_a_test_that_is_killed(self):
        """A process starts redis-server and kv as above, and is killed: the system closes what they alone held open."""
        killed = subprocess.Popen([sys.executable, "-c", KILLED, KV], stdout=subprocess.PIPE, cwd=os.path.dirname(__file__) or ".")
        self.assertEqual(killed.stdout.readline(), b"begun\n")
        killed.kill()
        killed.wait(running.PATIENCE)
        self.assertTrue(select.select([killed.stdout], [], [], running.PATIENCE)[0], "they live on")
        self.assertEqual(killed.stdout.read(), b"")
        killed.stdout.close()

    def redis_client(self):
        import socket
        client = running.Client.__new__(running.Client)
        client.socket, client.rest = socket.socket(socket.AF_UNIX), b""
        client.socket.settimeout(running.PATIENCE)
        client.socket.connect(self.path)
        return client

    def test_random_commands_have_the_same_answers(self):
        seed = int(os.environ.get("FILCH_SEED", "1"))
        rng = random.Random(seed)
        ours, theirs = running.Client(self.service.port), self.redis_client()
        left = running.scale(30000, 1000)
        while left > 0:  # several at a time: a loaded machine is asked to switch between the three less often
            batch = [draw(rng) for _ in range(min(left, rng.choice([1, 2, 50, 200])))]
            for client in (ours, theirs):
                client.send(b"".join(request(*args) for args in batch))
            for args in batch:
                self.assertEqual(raw_reply(ours), raw_reply(theirs), f"{left} commands before the last of seed {seed}: {args}")
                left -= 1
        ours.close()
        theirs.socket.close()


if __name__ == "__main__":
    KV = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
