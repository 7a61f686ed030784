"""A daemon with an HTTP and a RESP port for the checks of the HTTP port, and raw requests to it."""
import os
import re
import socket
import subprocess
import tempfile

TOKEN = "a token of the tests"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Daemon:
    """`program serve` in a folder of its own; `limits`: of daemon_with_limits beside it."""

    def __init__(self, program, unix=False, token=True, more=(), limits=(), config="",
                 store=None, ssd="64MiB"):
        self.folder = tempfile.TemporaryDirectory()
        place = self.folder.name
        self.port, self.resp = free_port(), free_port()
        self.path = os.path.join(place, "run", "http.sock") if unix else None
        self.client = os.path.join(place, "run", "cachesvc.sock")
        self.config = os.path.join(place, "config.toml")
        with open(self.config, "w") as file:
            file.write(config)
        args = ["serve", "--config", self.config, "--ssd", ssd,
                "--dir", store or os.path.join(place, "store"), "--socket", self.client,
                "--ram", "64MiB",
                "--codec", "raw", "--set", "tier.ssd.min_free=0", "--log-level", "info",
                "--resp", f"127.0.0.1:{self.resp}",
                "--http", self.path or f"127.0.0.1:{self.port}", *more]
        if token:
            self.token_file = os.path.join(place, "token")
            with open(os.open(self.token_file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write(TOKEN + "\n")
            args += ["--set", "server.http.token_file=" + self.token_file]
        if limits:
            program = os.path.join(os.path.dirname(program), "daemon_with_limits")
        reads, writes = os.pipe()
        self.log = open(os.path.join(place, "log"), "w+")
        self.process = subprocess.Popen([program, *limits, *args, "--ready-fd", str(writes)],
                                        pass_fds=[writes], stderr=self.log, cwd=place)
        os.close(writes)
        with os.fdopen(reads, "rb") as ready:
            assert ready.read(5) == b"ready", self.said()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def said(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def connect(self):
        s = socket.socket(socket.AF_UNIX if self.path else socket.AF_INET)
        s.settimeout(30)
        s.connect(self.path or ("127.0.0.1", self.port))
        return s

    def call_resp(self, *words):
        """The first line of a command's reply."""
        with socket.create_connection(("127.0.0.1", self.resp), timeout=30) as s:
            parts = [w if isinstance(w, bytes) else w.encode() for w in words]
            s.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p)
                                                       for p in parts))
            return s.makefile("rb").readline()

    def request(self, method, target, headers=(), body=b"", token=TOKEN, host=None, raw=None):
        """Code, headers and body of one request on a connection of its own."""
        host = host or f"127.0.0.1:{self.port}"
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
        if token:
            lines.append("Authorization: Bearer " + token)
        if body:
            lines.append(f"Content-Length: {len(body)}")
        with self.connect() as s:
            send_all(s, raw or "\r\n".join(lines + ["", ""]).encode() + body)
            return read_reply(s.makefile("rb"), method == "HEAD")

    def get(self, target, **more):
        code, _, body = self.request("GET", target, **more)
        assert code == 200, (target, code, body)
        return body.decode()

    def post(self, target, form, token=TOKEN, headers=(), **more):
        headers = ["Content-Type: application/x-www-form-urlencoded", *headers]
        return self.request("POST", target, headers, form.encode(), token, **more)


def send_all(s, data):
    """Sends what the daemon takes: it may have refused and closed by then."""
    try:
        s.sendall(data)
    except OSError:
        pass


def read_reply(stream, only_head=False):
    """Code, headers and body of the next answer; code 0: the connection ended."""
    try:
        status = stream.readline().decode()
        if not status:
            return 0, {}, b""
        headers = {}
        while (line := stream.readline().decode().strip()):
            name, value = line.split(": ", 1)
            headers[name.lower()] = value
        size = -1 if only_head else int(headers["content-length"])  # -1: to the connection's end
        return int(status.split()[1]), headers, stream.read(size)
    except ConnectionError:
        return 0, {}, b""


def samples(text):
    """Series -> value of Prometheus' text."""
    found = re.findall(r"^([a-z_]+(?:\{.*\})?) (\S+)$", text, flags=re.M)
    return {series: float(value) for series, value in found}
