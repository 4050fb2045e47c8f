"""chat_test PROGRAM - the chat room, with guests over loopback."""
import select
import threading
import time

import running


class Chat(running.ServiceTest, running.Common):
    names = 0

    def greet(self, client):
        Chat.names += 1
        self.enter(client, f"greeter-{Chat.names}")
        client.send(b"/quit\n")
        client.all()

    def enter(self, client, name):
        self.assertEqual(client.line(), b"* what is your name?\n")
        client.send(name.encode() + b"\r\n")
        self.assertEqual(client.line(), b"* welcome; /quit leaves\n")
        return client

    def guest(self, name):
        return self.enter(self.client(), name)

    def test_what_one_types_all_others_read_and_who_comes_and_goes(self):
        ann, bob = self.guest("ann"), self.guest("bob")
        self.assertEqual(ann.line(), b"* bob has joined\n")
        eve = self.guest("eve")
        self.assertEqual((ann.line(), bob.line()), (b"* eve has joined\n",) * 2)
        bob.send(b"hello\r\nall\n")
        for other in (ann, eve):
            self.assertEqual((other.line(), other.line()), (b"bob: hello\n", b"bob: all\n"))
        ann.send(b"/quit\n")
        self.assertEqual(ann.all(), b"")
        eve.reset()
        self.assertEqual({bob.line(), bob.line()}, {b"* ann has left\n", b"* eve has left\n"})

    def test_a_name_belongs_to_one_and_is_free_when_he_has_left(self):
        ann, other = self.guest("ann"), self.client()
        self.assertEqual(other.line(), b"* what is your name?\n")
        for bad, said in ((b"ann", b"* that name is taken\n"), (b"a b", b"* a name has only letters, digits, - and _\n"),
                          (b"", b"* a name has only letters, digits, - and _\n")):
            other.send(bad + b"\n")
            self.assertEqual((other.line(), other.line()), (said, b"* what is your name?\n"))
        other.send(b"bob\n")
        self.assertEqual(other.line(), b"* welcome; /quit leaves\n")
        self.assertEqual(ann.line(), b"* bob has joined\n")
        ann.close()
        self.assertEqual(other.line(), b"* ann has left\n")
        self.guest("ann")

    def test_names_and_lines_that_are_too_long_end_the_connection(self):
        c = self.client()
        c.line()
        c.send(b"x" * 27)
        self.assertEqual(c.all(), b"* a name has at most 24 letters; goodbye\n")
        ann, bob = self.guest("ann"), self.guest("bob")
        ann.line()
        bob.send(b"x" * 2000)
        self.assertEqual(bob.all(), b"")
        self.assertEqual(ann.line(), b"* bob has left\n")

    def test_lines_may_come_in_pieces_and_hold_no_surprises(self):
        ann, bob = self.guest("ann"), self.guest("bob")
        ann.line()
        for piece in (b"h", b"e", b"y\x1b[2J", b"\n\n\nyou\n"):
            bob.send(piece)
        self.assertEqual((ann.line(), ann.line()), (b"bob: hey [2J\n", b"bob: you\n"))

    def test_a_slow_reader_misses_lines_and_stops_nobody(self):
        slow = self.enter(self.client(receive_bytes=4096), "slow")
        bob, eve = self.guest("bob"), self.guest("eve")
        count, text = running.scale(30000, 10000), "x" * 900  # more than the system keeps for `slow`
        self.assertEqual(bob.line(), b"* eve has joined\n")

        def talk():
            for i in range(count):
                bob.send(f"{i} {text}\n".encode())
                if i % 100 == 99:
                    gate.wait()  # eve has read so far: only `slow` is behind

        gate = threading.Barrier(2, timeout=running.PATIENCE)
        talker = threading.Thread(target=talk)
        talker.start()
        for i in range(count):
            self.assertEqual(eve.line(), f"bob: {i} {text}\n".encode())
            if i % 100 == 99:
                gate.wait()
        talker.join()
        bob.send(b"over\n")
        self.assertEqual(eve.line(), b"bob: over\n")
        # Now `slow` reads. The lines that it gets are in order, and further lines say how many it has missed.
        got, missed, last = 0, 0, -1
        self.assertEqual((slow.line(), slow.line()), (b"* bob has joined\n", b"* eve has joined\n"))
        while True:
            line = slow.line()
            if line.startswith(b"* you missed "):
                missed += int(line.split()[3])
            elif line == b"bob: over\n":
                break
            else:
                number = int(line.split()[1])
                self.assertGreater(number, last)
                last, got = number, got + 1
        self.assertGreater(missed, 0)
        self.assertEqual(got + missed, count)

    def test_a_half_sent_line_ends_its_connection_and_silence_does_not(self):
        other = running.Service(self.program, "--port", "0", "--request-seconds", "1")
        silent, listens, ann = (running.Client(other.port) for _ in range(3))
        self.enter(listens, "listens")
        self.enter(ann, "ann")
        unnamed = running.Client(other.port)
        unnamed.send(b"half a na")
        self.assertEqual(unnamed.all(), b"* what is your name?\n")  # silent and listens have been silent for as long
        ann.send(b"whole\nhalf a li")
        self.assertEqual(ann.all(), b"")
        self.assertEqual([listens.line() for _ in range(3)], [b"* ann has joined\n", b"ann: whole\n", b"* ann has left\n"])
        self.enter(silent, "silent")
        self.assertEqual(listens.line(), b"* silent has joined\n")
        listens.send(b"h")
        listens.send(b"i\n")
        self.assertEqual(silent.line(), b"listens: hi\n")
        self.assertEqual(other.stop(), (0, ""))
        for client in (silent, listens, ann, unnamed):
            client.close()

    def test_a_client_that_reads_nothing_is_disconnected_after_write_seconds(self):
        other = running.Service(self.program, "--port", "0", "--write-seconds", "1")
        deaf, bob = running.Client(other.port, receive_bytes=4096), running.Client(other.port)
        self.enter(deaf, "deaf")
        self.enter(bob, "bob")
        lines, said, begun = (b"x" * 1000 + b"\n") * 50, b"", time.monotonic()
        while b"* deaf has left\n" not in said:
            bob.send(lines)
            while select.select([bob.socket], [], [], 0)[0]:
                said += bob.more()
        self.assertLess(time.monotonic() - begun, 20)  # the default is 30 s
        deaf.close(), bob.close()
        self.assertEqual(other.stop(), (0, ""))

    def test_a_guest_that_fails_is_seen_off_and_takes_nobody_with_him(self):
        self.failures = 1
        ann, bob = self.guest("ann"), self.guest("bob")
        ann.line()
        bob.send(b"/crash\n")
        self.assertEqual(ann.line(), b"* bob has left\n")
        self.guest("bob")
        self.assertEqual(ann.line(), b"* bob has joined\n")

    def test_a_hundred_guests_hear_each_other(self):
        guests = [self.guest(f"g{i}") for i in range(100)]
        for i, guest in enumerate(guests):
            for k in range(i + 1, 100):
                self.assertEqual(guest.line(), b"* g%d has joined\n" % k)
        for i, guest in enumerate(guests):
            guest.send(b"I am %d\n" % i)
        for i, guest in enumerate(guests):
            heard = {guest.line() for _ in range(99)}
            self.assertEqual(heard, {b"g%d: I am %d\n" % (k, k) for k in range(100) if k != i})


if __name__ == "__main__":
    running.main()
