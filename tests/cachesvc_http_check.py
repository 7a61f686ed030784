#!/usr/bin/env python3
"""The HTTP port of a real daemon: who gets what, what is refused and why, how connections end, what
/metrics and /status.json say, what a posted verb does; and the monitoring files: every metric that
they name is there, and promtool has nothing to say where it is installed.

usage: cachesvc_http_check.py PROGRAM MONITORING_FOLDER
"""
import base64
import glob
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time

from cachesvc_http_daemon import TOKEN, Daemon, read_reply, samples

READS = ("/metrics", "/status", "/status.json", "/requests")
POSTS = ("/clear", "/purge", "/erase", "/demote", "/expire")


def basic(token):
    return "Authorization: Basic " + base64.b64encode(b"me:" + token.encode()).decode()


def check_who_gets_what(program):
    with Daemon(program) as d:
        assert d.request("GET", "/healthz", token=None)[::2] == (200, b"ok\n")
        assert d.request("GET", "/readyz", token=None)[::2] == (200, b"ready\n")
        for path in READS:
            code, headers, _ = d.request("GET", path, token=None)
            assert code == 401 and headers["www-authenticate"].startswith("Basic "), (path, code)
            assert d.request("GET", path, token=TOKEN + "x")[0] == 401
            assert d.request("GET", path, token=TOKEN[:-1])[0] == 401
            assert d.request("GET", path)[0] == 200
            assert d.request("GET", path, [basic(TOKEN)], token=None)[0] == 200
            assert d.request("GET", path, [basic("x" * 20)], token=None)[0] == 401
        for path in POSTS:
            assert d.post(path, "namespace=a", token=None)[0] == 401, path
            assert d.post(path, "namespace=a", token="wrong" * 4)[0] == 401, path
        assert "wrong password" in d.said() and TOKEN not in d.said()
        assert samples(d.get("/metrics"))["cachesvc_denied_total"] > 5


def check_a_unix_socket(program):
    with Daemon(program, unix=True, token=False) as d:
        assert stat.S_IMODE(os.stat(d.path).st_mode) == 0o600
        for path in READS + ("/healthz", "/readyz"):
            assert d.request("GET", path, token=None)[0] == 200, path
            assert d.request("GET", path, token=None, host="localhost")[0] == 200, path
        for path in POSTS:
            code, _, body = d.post(path, "namespace=a&confirm=a", token=None)
            assert code == 403 and b"token_file" in body, (path, code, body)
        assert "to clear from here, set server.http.token_file" in d.get(
            "/status", token=None).replace("To", "to")
        path = d.path
        if shutil.which("curl"):
            said = subprocess.run(["curl", "-sS", "--unix-socket", path, "http://localhost/readyz"],
                                  text=True, stdout=subprocess.PIPE).stdout
            assert said == "ready\n", said
    assert not os.path.exists(path), "the socket file stays"


def check_hosts_and_origins(program):
    with Daemon(program) as d:
        p = d.port
        for host in ("localhost", f"LOCALHOST:{p}", "127.0.0.1", "127.8.9.1:80", f"[::1]:{p}"):
            assert d.request("GET", "/metrics", host=host)[0] == 200, host
        for host in ("evil.example", "evil.example:80", "localhost.evil.example",
                     "127.0.0.1.nip.io", "10.0.0.1", "localhost:x", "localhost:0",
                     "localhost:70000", "[::1", "[::2]",
                     "localhost@evil.example", "localhost, evil.example"):
            assert d.request("GET", "/metrics", host=host)[0] == 421, host
        raw = b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n"
        assert d.request("GET", "/healthz", raw=raw)[0] == 421, "no host"
        raw = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"
        assert d.request("GET", "/healthz", raw=raw)[0] == 421, "two hosts"
        own = f"127.0.0.1:{p}"
        for origin, code in ((f"http://{own}", 200), ("http://evil.example", 403), ("null", 403),
                             (f"https://{own}", 403), (f"http://127.0.0.1:{p + 1}", 403)):
            assert d.request("GET", "/metrics", [f"Origin: {origin}"])[0] == code, origin
        assert d.post("/purge", "namespace=a&confirm=a", headers=["Origin: http://x"])[0] == 403


def check_paths_and_methods(program):
    with Daemon(program) as d:
        for path in ("/", "/metrics/", "/status.html", "/../etc/passwd", "/%2e%2e", "/healthz%00"):
            code, _, body = d.request("GET", path)
            assert code == 404 and b"/metrics" in body, path
        for path in READS + ("/healthz",):
            for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "FOO"):
                code, headers, _ = d.request(method, path)
                assert code == 405 and headers["allow"] == "GET, HEAD", (method, path, code)
            plain, head = d.request("GET", path), d.request("HEAD", path)
            assert head[0] == 200 and head[2] == b"" and head[1]["content-type"] == \
                plain[1]["content-type"] and int(head[1]["content-length"]) > 0
        for path in POSTS:
            code, headers, _ = d.request("GET", path)
            assert code == 405 and headers["allow"] == "POST", path
        policy = d.request("GET", "/status")[1]["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy


def check_what_is_malformed_or_long(program):
    with Daemon(program) as d:
        def refused(raw):
            code, headers, body = d.request("GET", "/", raw=raw)
            assert headers.get("connection") == "close", (raw[:60], code, body)
            return code

        head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
        assert refused(b"hello\r\n\r\n") == 400
        assert refused(b"*1\r\n$4\r\nPING\r\n") == 400
        assert refused(b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n") == 400
        assert refused(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n") == 400
        assert refused(head + b"A: " + b"x" * 9000 + b"\r\n\r\n") == 431
        assert refused(head + b"A: b\r\n" * 2000 + b"\r\n") == 431
        assert refused(b"GET /" + b"x" * 100_000) == 431
        assert refused(head + b"Content-Length: 65537\r\n\r\n" + b"x" * 65537) == 413
        assert refused(head + b"Content-Length: 99999999999999\r\n\r\n") == 413
        assert refused(head + b"Content-Length: -1\r\n\r\n") == 400
        assert refused(head + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx") == 400
        chunked = b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
        assert refused(head + chunked) == 411
        many = "&".join("f%d" % i for i in range(40))
        for body in ("namespace=%zz", "namespace=%a", "a&a", many):
            assert d.post("/purge", body)[0] == 400, body
        code, _, _ = d.request("POST", "/purge", ["Content-Type: text/plain"], b"namespace=a")
        assert code == 415
        assert d.get("/healthz") == "ok\n"


def check_pipelined_requests(program):
    with Daemon(program) as d, d.connect() as s:
        one = f"GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        paths = ["/healthz", "/metrics", "/nothing", "/status.json", "/status"] * 40
        stream = s.makefile("rb")
        s.sendall("".join(one % path for path in paths).encode())
        codes = [read_reply(stream)[0] for _ in paths]
        assert codes == [200, 200, 404, 200, 200] * 40, codes
        # In pieces, a body among them.
        form = b"namespace=x&confirm=y"
        asked = (one % "/healthz").encode() + (
            f"POST /purge HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n"
            f"Content-Length: {len(form)}\r\n\r\n"
        ).encode() + form + (one % "/readyz").encode()
        for i in range(len(asked)):
            s.sendall(asked[i:i + 1])
        assert [read_reply(stream)[0] for _ in range(3)] == [200, 400, 200]
        s.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert read_reply(stream)[0] == 200 and stream.read() == b"", "HTTP/1.0 closes"


def ends(s):
    """True once the daemon has closed; its last words are read."""
    try:
        while s.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


def check_slow_peers_are_cut(program):
    with Daemon(program, limits=["handshake_timeout=1500"]) as d, d.connect() as silent:
        assert ends(silent), "no request in time"
    limits = ["progress_timeout=500", "http_idle_timeout=1500"]
    with Daemon(program, limits=limits) as d:
        with d.connect() as half:
            half.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
            assert ends(half)
        with d.connect() as idle:
            idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert ends(idle)
        with d.connect() as dribbles:
            dribbles.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                for _ in range(400):
                    dribbles.sendall(b"G")
                    time.sleep(0.02)
                raise AssertionError("a dribbling peer stays")
            except OSError:
                pass
        with d.connect() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one = (b"GET /status HTTP/1.1\r\nHost: localhost\r\n"
                   b"Authorization: Bearer %s\r\n\r\n" % TOKEN.encode())
            deaf.sendall(one * 400)
            time.sleep(3)
            got = 0
            try:
                while (part := deaf.recv(1 << 20)):
                    got += len(part)
            except ConnectionError:
                pass
            whole = 400 * len(d.get("/status"))
            assert got < whole, "a peer that does not read got everything"
        assert d.get("/healthz") == "ok\n"


def check_connections_are_bounded(program):
    with Daemon(program) as d:
        kept = [d.connect() for _ in range(16)]
        for s in kept:
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_reply(s.makefile("rb"))[0] == 200
        with d.connect() as one_more:
            code, _, body = read_reply(one_more.makefile("rb"))
            assert code == 503 and b"16 connections" in body, (code, body)
        assert d.call_resp("PING") == b"+PONG\r\n", "others have their own"
        kept.pop().close()
        deadline = time.monotonic() + 20
        while d.request("GET", "/healthz")[0] != 200:
            assert time.monotonic() < deadline
        for s in kept:
            s.close()


def check_wrong_settings(program):
    def refused(*settings):
        args = [program, "serve", "--ssd", "0", "--socket", "/nonexistent/x.sock"]
        for setting in settings:
            args += ["--set", setting]
        run = subprocess.run(args, text=True, stderr=subprocess.PIPE, timeout=60)
        assert run.returncode == 78, (settings, run)
        return run.stderr

    assert "of this machine alone" in refused("server.http.listen=0.0.0.0:9000")
    assert "of this machine alone" in refused("server.http.listen=192.168.1.1:9000")
    for listen in ("http.sock", "localhost:9000", "127.0.0.1", "127.0.0.1:0", "[::1]:9000"):
        assert "a path that begins with /" in refused("server.http.listen=" + listen), listen
    assert "set server.http.token_file" in refused("server.http.listen=127.0.0.1:9000")
    with tempfile.TemporaryDirectory() as folder:
        token = os.path.join(folder, "token")
        with open(token, "w") as file:
            file.write("x" * 20)
        os.chmod(token, 0o644)
        assert "token file" in refused("server.http.listen=/tmp/h.sock",
                                       "server.http.token_file=" + token)
        os.chmod(token, 0o600)
        assert "there is no HTTP port" in refused("server.http.token_file=" + token)
        with open(token, "w") as file:
            file.write("short")
        assert "16 to 256 bytes" in refused("server.http.listen=/tmp/h.sock",
                                            "server.http.token_file=" + token)
    with Daemon(program) as d, Daemon(program, unix=True) as other:
        def cannot_start(*more):
            run = subprocess.run([program, "serve", "--ssd", "0", "--socket", d.client + "2", *more,
                                  "--set", "server.http.token_file=" + d.token_file],
                                 text=True, stderr=subprocess.PIPE, timeout=60)
            assert run.returncode not in (0, 78), run
            return run.stderr

        assert "Address already in use" in cannot_start("--http", f"127.0.0.1:{d.port}")
        assert "another program listens" in cannot_start("--http", other.path)
        assert other.get("/readyz") == "ready\n"


def fill(d, keys=20, size=100_000, first=0):
    for i in range(first, first + keys):
        assert d.call_resp("SET", f"k{i}", os.urandom(size)) == b"+OK\r\n"
        assert d.call_resp("GET", f"k{i}") == b"$%d\r\n" % size
    for _ in range(3):
        assert d.call_resp("GET", "none") == b"$-1\r\n"


def wait_for(d, series, value):
    deadline = time.monotonic() + 30
    while samples(d.get("/metrics"))[series] != value:
        assert time.monotonic() < deadline, series


def check_numbers(program):
    with Daemon(program) as d:
        fill(d)
        wait_for(d, "cachesvc_write_queue_bytes", 0)
        text = d.get("/metrics")
        now = samples(text)
        for line in text.splitlines():
            assert re.fullmatch(r"# (HELP|TYPE) cachesvc_\w+ .+|cachesvc_\w+(\{.*\})? \S+",
                                line), line
        families = re.findall(r"^# TYPE (\w+) (\w+)$", text, flags=re.M)
        assert len(families) == len({name for name, _ in families})
        for name, kind in families:
            assert name.endswith("_total") == (kind == "counter"), name
        label = '{namespace="resp",model="values"'
        assert now[f"cachesvc_model_fetches_total{label}}}"] == now["cachesvc_fetches_total"] > 20
        assert now[f"cachesvc_model_stores_total{label}}}"] == now["cachesvc_commits_total"] == 20
        assert now[f'cachesvc_model_hit_tokens_total{label},tier="ram"}}'] == \
            now["cachesvc_hit_tokens_ram_total"] > 0
        assert now['cachesvc_fetch_duration_seconds_count{tier="ram"}'] == 20
        assert now["cachesvc_store_duration_seconds_count"] == 20
        assert now["cachesvc_store_duration_seconds_sum"] > 0
        assert now['cachesvc_queue_wait_seconds_count{queue="write"}'] == \
            now["cachesvc_spills_written_total"] > 0
        assert now["cachesvc_object_reuse_gap_seconds_count"] >= 20
        buckets = [value for series, value in now.items()
                   if series.startswith("cachesvc_store_duration_seconds_bucket")]
        assert buckets == sorted(buckets) and buckets[-1] == 20
        told = json.loads(d.get("/status.json"))
        assert told["schema"] == "cachesvc-status-1" and told["ready"] is True
        assert told["stats"]["commits"] == 20 and told["tiers"][1]["tier"] == "ssd"
        model = next(m for m in told["models"] if m["model"] == "values")
        assert model["stores"] == 20 and model["namespace"] == "resp"
        assert "namespace_entries" not in told["stats"]
        # The page has the same numbers.
        page = d.get("/status")
        shown = dict(re.findall(r'data-metric="([^"]+)" data-value="([^"]+)"', page))
        now = samples(d.get("/metrics"))
        checked = 0
        for series, value in shown.items():
            series = series.replace("&quot;", '"')
            if "loop" in series or "uptime" in series:
                continue
            assert now[series] == float(value), series
            checked += 1
        assert checked > 100
        assert "values" in d.get("/status?model=values")
        assert f"{label}" not in d.get("/status?model=other").replace("&quot;", '"')


def check_posted_verbs(program):
    with Daemon(program) as d:
        fill(d)
        wait_for(d, "cachesvc_write_queue_bytes", 0)
        for form, code in (("namespace=resp", 400), ("namespace=resp&confirm=rasp", 400),
                           ("namespace=resp&confirm=resp&x=1", 400), ("confirm=", 400),
                           ("namespace=none&confirm=none", 404)):
            assert d.post("/purge", form)[0] == code, form
        assert d.call_resp("DBSIZE") == b":20\r\n"
        ram = samples(d.get("/metrics"))["cachesvc_ram_objects"]
        code, _, body = d.post("/demote", "namespace=resp")
        assert code == 200, body
        reply = json.loads(body)
        assert reply["left_objects"] + reply["deferred_objects"] + reply["staying_objects"] == ram
        assert reply["left_objects"] > 0 and reply["staying_objects"] == 0, reply
        assert d.call_resp("GET", "k3") == b"$100000\r\n", "it lies on the SSD"
        assert samples(d.get("/metrics"))["cachesvc_promotion_duration_seconds_count"] > 0
        for path, form, code in (("/demote", "namespace=resp&model=values", 400),
                                 ("/demote", "namespace=resp&model=none&tokens=1", 404),
                                 ("/erase", "namespace=resp&model=values", 400),
                                 ("/erase", "namespace=resp&model=values&tokens=1,x", 400),
                                 ("/erase", "namespace=resp&model=values&tokens=1,2,3", 404),
                                 ("/expire", "namespace=resp&model=values&tokens=1", 400),
                                 ("/expire", "namespace=resp&model=values&tokens=1&seconds=x", 400),
                                 ("/expire", "namespace=resp&tokens=1&seconds=5", 400)):
            assert d.post(path, form)[0] == code, (path, form, d.post(path, form))
        code, _, body = d.post("/expire", "namespace=resp&model=values&tokens=1&seconds=5&whole=1")
        assert code == 200 and json.loads(body)["outcome"] == "missing", body
        code, headers, body = d.post("/purge", "namespace=resp&confirm=resp",
                                     headers=["Accept: text/html"])
        assert code == 200 and b"erased_objects" in body and "html" in headers["content-type"]
        assert d.call_resp("DBSIZE") == b":0\r\n"


def check_the_ssd_is_cleared_alone(program):
    with Daemon(program) as d:
        fill(d)
        wait_for(d, "cachesvc_write_queue_bytes", 0)
        files = os.path.join(d.folder.name, "store", "?", "*.*")
        objects = len([f for f in glob.glob(files) if not f.endswith((".model", ".profile"))])
        assert objects == samples(d.get("/metrics"))["cachesvc_ssd_objects"] == 40
        for form, code in (("namespace=resp", 400), ("namespace=resp&confirm=rasp", 400),
                           ("namespace=none&confirm=none", 404)):
            assert d.post("/clear", form)[0] == code, form
        code, _, body = d.post("/clear", "namespace=resp&confirm=resp")
        assert json.loads(body) == {"removed_files": 40, "staying_files": 0}, body
        assert not [f for f in glob.glob(files) if not f.endswith((".model", ".profile"))]
        assert samples(d.get("/metrics"))["cachesvc_ssd_objects"] == 0
        for i in range(20):
            assert d.call_resp("GET", f"k{i}") == b"$100000\r\n", "RAM has it"
        # RAM's part goes back to the SSD when it must; the part that only the SSD has is lost.
        d.post("/demote", "namespace=resp")
        wait_for(d, "cachesvc_ssd_objects", 40)
        assert json.loads(d.post("/demote", "namespace=resp")[2])["left_objects"] == 40
        body = d.post("/clear", "namespace=resp&confirm=resp")[2]
        assert json.loads(body)["removed_files"] == 40, body
        assert d.call_resp("DBSIZE") == b":0\r\n"
        assert d.call_resp("SET", "k1", b"again") == b"+OK\r\n"
        assert d.call_resp("GET", "k1") == b"$5\r\n"
    with Daemon(program, ssd="0") as d:
        assert d.post("/clear", "namespace=resp&confirm=resp")[0] == 503


def check_readiness_says_why_not(program):
    with Daemon(program) as d:
        fill(d)
        wait_for(d, "cachesvc_write_queue_bytes", 0)
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            d.process.terminate()
            d.process.wait()
            shutil.copytree(os.path.join(d.folder.name, "store"), store)
            for path in glob.glob(os.path.join(store, "*catalog*")):
                os.unlink(path)
            limits = ["adopt_at_start=1", "reconcile_rate=1"]
            with Daemon(program, limits=limits, store=store) as other:
                code, _, body = other.request("GET", "/readyz", token=None)
                assert code == 503 and body.startswith(b"recovering: "), (code, body)
                assert other.request("GET", "/healthz", token=None)[0] == 200
                assert samples(other.get("/metrics"))["cachesvc_ready"] == 0
                assert "not ready: recovering" in other.get("/status")


def check_readiness_says_that_it_drains(program):
    more = ["--set", "tier.ssd.spill=evict", "--set", "tier.ssd.write_rate=4096"]
    with Daemon(program, more=more) as d:
        fill(d)
        d.process.terminate()
        deadline = time.monotonic() + 30
        while (code := d.request("GET", "/readyz", token=None))[0] == 200:
            assert time.monotonic() < deadline
        assert (code[0], code[2]) == (503, b"draining\n"), code
        assert d.request("GET", "/healthz", token=None)[0] == 200
        time.sleep(1.1)
        d.process.terminate()  # the second one ends it at once


def check_requests_say_why(program):
    with Daemon(program) as d:
        fill(d, keys=5)
        told = json.loads(d.get("/requests"))
        assert told["schema"] == "cachesvc-requests-1"
        assert told["newest"] == told["kept"] > 5
        served = [r for r in told["requests"] if r["missing"] == "nothing"]
        assert served and all(r["ram_tokens"] == r["served"] > 0 for r in served), served
        missed = json.loads(d.get("/requests?missed=1&limit=2&namespace=resp"))["requests"]
        assert [r["missing"] for r in missed] == ["never_stored"] * 2, missed
        assert any("never stored" in line for line in missed[0]["words"]), missed[0]
        every = json.loads(d.get("/requests?missed=1"))["requests"]
        assert every and all(r["missing"] != "nothing" for r in every), every
        one = json.loads(d.get(f"/requests?number={missed[1]['number']}"))["requests"]
        assert len(one) == 1 and one[0]["number"] == missed[1]["number"]
        assert json.loads(d.get("/requests?namespace=none"))["requests"] == []
        for query, code in (("limit=0", 400), ("limit=x", 400), ("missed=2", 400), ("x=1", 400),
                            ("number=0", 400), ("number=99999", 404)):
            assert d.request("GET", "/requests?" + query)[0] == code, query
        page = d.get("/status")
        now = samples(d.get("/metrics"))
        short = now['cachesvc_short_requests_total{reason="never_stored"}']
        assert short > 2 and "never stored <span" in page
        assert f'reason=&quot;never_stored&quot;}}" data-value="{int(short)}"' in page, short
        assert "short_erased" not in page.split('id="stats"')[0]


def check_ages_and_waits_are_told(program):
    with Daemon(program) as d:
        for first in range(0, 300, 25):  # twice RAM, and the SSD, which is let keep up
            fill(d, keys=25, size=400_000, first=first)
            wait_for(d, "cachesvc_write_queue_bytes", 0)
        now = samples(d.get("/metrics"))
        evicted = now["cachesvc_ram_evicted_clean_objects_total"] + \
            now["cachesvc_ram_evicted_dirty_objects_total"]
        assert evicted > 50 and now["cachesvc_ssd_evicted_objects_total"] > 50
        idle = "cachesvc_object_idle_before_eviction_seconds_count"
        assert now[idle + '{tier="ram"}'] == evicted
        assert now[idle + '{tier="ssd"}'] == now["cachesvc_ssd_evicted_objects_total"]
        assert 0 < now["cachesvc_object_lifetime_seconds_count"] <= \
            evicted + now["cachesvc_ssd_evicted_objects_total"]
        for i in range(150, 300):
            d.call_resp("GET", f"k{i}")
        now = samples(d.get("/metrics"))
        reads = now["cachesvc_promotions_total"] - now["cachesvc_promotion_failures_total"]
        assert now["cachesvc_promotion_duration_seconds_count"] == reads > 0
        assert now['cachesvc_queue_wait_seconds_count{queue="read"}'] == reads
        served = now['cachesvc_fetch_duration_seconds_count{tier="ssd"}'] + \
            now['cachesvc_fetch_duration_seconds_count{tier="mixed"}']
        assert 0 < served <= reads


def check_what_is_in_ram_only_is_written_before_it_leaves(program):
    with Daemon(program, more=["--set", "tier.ssd.spill=evict"]) as d:
        fill(d)
        assert samples(d.get("/metrics"))["cachesvc_ssd_objects"] == 0
        reply = json.loads(d.post("/demote", "namespace=resp")[2])
        assert reply == {"left_objects": 0, "deferred_objects": 40, "staying_objects": 0}, reply
        wait_for(d, "cachesvc_ssd_objects", 40)
        reply = json.loads(d.post("/demote", "namespace=resp")[2])
        assert reply == {"left_objects": 40, "deferred_objects": 0, "staying_objects": 0}, reply
        for i in range(20):
            assert d.call_resp("GET", f"k{i}") == b"$100000\r\n", "lost"
        assert d.call_resp("EXISTS", "k7") == b":1\r\n"  # holds it
        reply = json.loads(d.post("/demote", "namespace=resp")[2])
        assert reply["staying_objects"] > 0, reply
    with Daemon(program, ssd="0") as d:
        fill(d)
        code, _, body = d.post("/demote", "namespace=resp")
        assert code == 503 and b"there is no SSD" in body, body


def check_many_namespaces(program):
    tables = "".join(f'[[namespace]]\nname = "tenant-{i}"\nram = "1MiB"\n' for i in range(50))
    tables += '[[namespace]]\nname = "a\\"b\\\\c\\nd"\n[[namespace]]\nname = "<script>&\\"x"\n'
    with Daemon(program, config=tables) as d:
        now = samples(d.get("/metrics"))
        assert now['cachesvc_namespace_quota_bytes{namespace="tenant-7",tier="ram"}'] == 1 << 20
        assert now['cachesvc_namespace_sessions{namespace="a\\"b\\\\x5cc\\\\x0ad"}'] == 0
        json.loads(d.get("/status.json"))
        page = d.get("/status")
        assert "&lt;script&gt;&amp;&quot;x" in page and "<script>&" not in page


def check_monitoring(program, folder):
    with Daemon(program) as d:
        fill(d)
        text = d.get("/metrics")
    families = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, flags=re.M))
    there = set(families)
    for name, kind in families.items():
        if kind == "histogram":
            there |= {name + end for end in ("_bucket", "_sum", "_count")}
    files = sorted(glob.glob(os.path.join(folder, "*")))
    assert len(files) == 2, files
    for path in files:
        with open(path) as file:
            content = file.read()
        if path.endswith(".json"):
            json.loads(content)
        used = set(re.findall(r"\bcachesvc_[a-z0-9_]+", content))
        assert len(used) > 10, path
        assert not used - there, f"{path} names {sorted(used - there)}"
    promtool = shutil.which("promtool")
    if promtool is None:
        return print("promtool is not installed (tools/install --all): left out")
    said = subprocess.run([promtool, "check", "metrics"], input=text, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert said.returncode == 0 and not said.stdout.strip(), said.stdout
    rules = [path for path in files if path.endswith(".yml")]
    said = subprocess.run([promtool, "check", "rules", *rules], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert said.returncode == 0 and "SUCCESS" in said.stdout, said.stdout


def main():
    program, folder = sys.argv[1:3]
    only = sys.argv[3:]
    for name, check in list(globals().items()):
        if not name.startswith("check_") or (only and name not in only):
            continue
        begun = time.monotonic()
        check(program, folder) if name == "check_monitoring" else check(program)
        print(f"{name}: ok, {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
