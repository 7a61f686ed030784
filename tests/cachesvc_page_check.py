#!/usr/bin/env python3
"""The status page in headless Chromium: its numbers equal /metrics, it renews itself, it is whole
without JavaScript, no wider than a telephone, and asks nobody else for anything. Screenshots are
left in FOLDER: status.png, status-narrow.png, status-plain.png (no JavaScript), status-dark.png.

usage: cachesvc_page_check.py PROGRAM FOLDER
Exits with 77 (skipped), saying so, where no Chromium is installed.
"""
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from cachesvc_http_check import fill, wait_for
from cachesvc_http_daemon import TOKEN, Daemon, samples

SKIPPED = 77
NARROW = "390,2400"
# Numbers that move by themselves.
MOVING = re.compile("loop|uptime|session|peak|ram_used|waiting_calls|scrub|recycled")


def chromium(*args, scripts=True):
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as profile:
        os.mkdir(os.path.join(profile, "Default"))
        with open(os.path.join(profile, "Default", "Preferences"), "w") as file:
            blocked = {} if scripts else {"javascript": 2}
            json.dump({"profile": {"default_content_setting_values": blocked}}, file)
        run = subprocess.run(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", f"--user-data-dir={profile}", *args],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


def shown(page):
    return {html.unescape(series): float(value) for series, value in
            re.findall(r'data-metric="([^"]+)" data-value="([^"]+)"', page)}


def check_numbers(d, page, what):
    now, seen = samples(d.get("/metrics")), shown(page)
    assert len(seen) > 100, (what, len(seen))
    for series, value in seen.items():
        assert MOVING.search(series) or now[series] == value, (what, series, value)


def main():
    program, folder = sys.argv[1:3]
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        print("no chromium (tools/install --all installs it): skipped")
        return SKIPPED
    with Daemon(program) as d:
        fill(d)
        wait_for(d, "cachesvc_write_queue_bytes", 0)
        url = f"http://me:{TOKEN.replace(' ', '%20')}@127.0.0.1:{d.port}/status"
        check_numbers(d, d.get("/status"), "without JavaScript")
        page = chromium("--virtual-time-budget=7000", "--dump-dom", url)
        check_numbers(d, page, "with JavaScript")
        rates = re.findall(r'data-rate="[^"]+">([^<]*)<', page)
        assert rates and all(rate.endswith("/s") for rate in rates), ("not renewed", rates)
        assert 'id="lost" class="bad" hidden' in page, "it says that the service does not answer"
        assert not re.search(r'(?:src|href)="(?!data:|/)', page), "an asset from elsewhere"
        for name, *args in (("status", "--window-size=1100,2000"),
                            ("status-narrow", "--window-size=" + NARROW),
                            ("status-plain", "--window-size=1100,2000"),
                            ("status-dark", "--window-size=1100,2000",
                             "--blink-settings=preferredColorScheme=0")):
            path = os.path.join(folder, name + ".png")
            chromium(*args, "--screenshot=" + path, url, scripts=name != "status-plain")
            assert os.path.getsize(path) > 20_000, name
    return 0



if __name__ == "__main__":
    sys.exit(main())
