"""http_test PROGRAM - requests to the HTTP service over loopback."""
import http.client
import os
import re

import running

HELLO = b"Hello, world!\n"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def answer(client, body=True):
    """Returns (status, headers, body) of the next reply."""
    head = client.until(b"\r\n\r\n").decode()
    lines = head[:-4].split("\r\n")
    status = re.fullmatch(r"HTTP/1\.1 (\d+) [\w ]+", lines[0])
    assert status, lines[0]
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
    return int(status[1]), headers, client.exactly(int(headers["content-length"])) if body else b""


class Http(running.ServiceTest, running.Common):
    def greet(self, client):
        client.send(GET)
        self.assertEqual(answer(client)[::2], (200, HELLO))

    def status(self, data):
        """Returns the reply, and checks that the connection is closed then."""
        c = self.client()
        c.send(data)
        status, headers, _ = answer(c)
        self.assertEqual(headers["connection"], "close")
        self.assertEqual(c.all(), b"")
        return status

    def test_hello_with_the_headers_that_belong_to_it(self):
        c = self.client()
        c.send(GET)
        status, headers, body = answer(c)
        self.assertEqual((status, body), (200, HELLO))
        self.assertEqual(headers["content-type"], "text/plain")
        self.assertRegex(headers["date"], r"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$")
        self.assertNotIn("connection", headers)

    def test_a_library_of_others_is_content(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=running.PATIENCE)
        for method, path, status, body in [("GET", "/", 200, HELLO), ("HEAD", "/", 200, b""), ("GET", "/no", 404, b"Not Found\n"),
                                           ("POST", "/", 405, b"Method Not Allowed\n"), ("GET", "/", 200, HELLO)]:
            connection.request(method, path, body=b"x" * 5000 if method == "POST" else None)
            response = connection.getresponse()
            self.assertEqual((response.status, response.read()), (status, body))  # all on one connection
        connection.close()

    def test_head_has_the_headers_of_get_and_no_body(self):
        c = self.client()
        c.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" + b"HEAD /no HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        self.assertEqual(answer(c, body=False)[1]["content-length"], "14")
        self.assertEqual(answer(c, body=False)[0], 404)
        self.assertEqual(answer(c)[::2], (200, HELLO))

    def test_many_requests_at_once_are_answered_in_order(self):
        c = self.client()
        c.send((GET + GET.replace(b"/ ", b"/no ")) * 2000)
        for _ in range(2000):
            self.assertEqual((answer(c)[0], answer(c)[0]), (200, 404))

    def test_a_request_may_come_byte_by_byte(self):
        c = self.client()
        for byte in GET + GET:
            c.send(bytes([byte]))
        self.assertEqual([answer(c)[0], answer(c)[0]], [200, 200])

    def test_requests_may_be_cut_anywhere(self):
        c = self.client()
        whole = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789" + GET
        for at in range(1, len(whole)):
            c.send(whole[:at])
            self.greet(self.client())
            c.send(whole[at:])
            self.assertEqual([answer(c)[0], answer(c)[0]], [405, 200])

    def test_bodies_are_skipped_and_not_taken_for_requests(self):
        c = self.client()
        c.send(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (len(GET) * 3000) + GET * 3000 + GET)
        self.assertEqual([answer(c)[0], answer(c)[0]], [200, 200])
        c.half_close()
        self.assertEqual(c.all(), b"")

    def test_connections_stay_or_end_as_the_request_says(self):
        for line, version, stays in [(b"", b"1.1", True), (b"Connection: close\r\n", b"1.1", False),
                                     (b"Connection: x, CLOSE ,y\r\n", b"1.1", False), (b"Connection: keep-alive\r\n", b"1.1", True),
                                     (b"", b"1.0", False), (b"Connection: Keep-Alive\r\n", b"1.0", True)]:
            c = self.client()
            c.send(b"GET / HTTP/" + version + b"\r\nHost: x\r\n" + line + b"\r\n")
            status, headers, _ = answer(c)
            self.assertEqual((status, headers.get("connection") == "close"), (200, not stays), line)
            if stays:
                self.greet(c)
            else:
                self.assertEqual(c.all(), b"")

    def test_what_is_no_request_is_a_400_and_the_end(self):
        for bad in (b"hello\r\n\r\n", b"GET /\r\n\r\n", b"GET  / HTTP/1.1\r\n\r\n", b"G(T / HTTP/1.1\r\nHost: x\r\n\r\n",
                    b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", b"GET / HTTP/1.1\nHost: x\n\n",
                    b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 2\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
                    b"GET / HTTP/x.y\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\n", b"GET /\x7f HTTP/1.1\r\nHost: x\r\n\r\n"):
            self.assertEqual(self.status(bad), 400, bad)

    def test_what_is_not_done_here_has_its_own_number(self):
        self.assertEqual(self.status(b"GET / HTTP/2.0\r\nHost: x\r\n\r\n"), 505)
        self.assertEqual(self.status(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 501)
        self.assertEqual(self.status(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n"), 413)
        c = self.client()
        c.send(b"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, _ = answer(c)
        self.assertEqual((status, headers["allow"]), (405, "GET, HEAD"))
        self.greet(c)

    def test_a_head_that_is_too_long_is_a_431(self):
        start = b"GET / HTTP/1.1\r\nHost: x\r\nA: "
        self.assertEqual(self.status(start + b"b" * 8192), 431)
        self.assertEqual(self.status(start + b"b" * 100000 + b"\r\n\r\n"), 431)
        self.assertEqual(self.status(b"\r\n" * 5000), 431)
        c = self.client()
        c.send(start + b"b" * (8192 - len(start) - 4) + b"\r\n\r\n")  # just fits
        self.assertEqual(answer(c)[0], 200)

    def test_answers_before_a_bad_request_are_not_lost(self):
        c = self.client()
        c.send(GET * 10 + b"nonsense\r\n\r\n" + b"x" * 500_000)
        c.wait_for_end()
        self.assertEqual([answer(c)[0] for _ in range(11)], [200] * 10 + [400])
        self.assertEqual(c.socket.recv(1), b"")  # not a reset, which could overtake the answers

    def test_clients_that_vanish_disturb_nobody(self):
        c = self.client()
        for i in range(60):
            other = running.Client(self.service.port)
            other.send([GET * 1000, GET[:10], b""][i % 3])
            other.reset()
        self.greet(c)

    def test_a_connection_that_fails_takes_nobody_with_it(self):
        self.failures = 2
        c = self.client()
        for _ in range(2):
            other = self.client()
            other.send(GET.replace(b"/ ", b"/crash "))
            self.assertEqual(other.all(), b"")
        self.greet(c)
        self.greet(self.client())

    def test_bytes_that_mean_nothing_never_stop_it(self):
        for i in range(100):
            c = running.Client(self.service.port)
            c.send(os.urandom(i * 37 + 1) + b"\r\n\r\n")
            c.half_close()
            c.all()
            c.close()
        self.greet(self.client())


if __name__ == "__main__":
    running.main()
