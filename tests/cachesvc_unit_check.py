#!/usr/bin/env python3
"""The systemd unit: closed as far as promised (exposure at most 0.5), well formed, and its command
line starts this program, under the unit's system call filter.

usage: cachesvc_unit_check.py UNIT PROGRAM
Exits with 77 (skipped), saying why, where a tool is missing.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

MOST_EXPOSED = 0.5
SKIPPED = 77


def run(*command):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def setting(unit, key):
    return [line.split("=", 1)[1] for line in unit.splitlines() if line.startswith(key + "=")]


def check_exposure(path):
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", path).stdout
    level = re.search(r"exposure level for \S+: ([\d.]+)", said)
    assert level, "systemd-analyze security: " + said[-500:]
    assert float(level[1]) <= MOST_EXPOSED, f"exposure {level[1]}, at most {MOST_EXPOSED}"
    return level[1]


def check_form(unit, program, folder):
    path = os.path.join(folder, "cachesvc.service")
    with open(path, "w") as file:
        file.write(re.sub(r"^ExecStart=\S+", "ExecStart=" + program, unit, flags=re.M))
    said = run("systemd-analyze", "verify", "--man=no", path).stdout
    about = [line for line in said.splitlines() if "cachesvc.service" in line]
    assert not about, "systemd-analyze verify: " + "\n".join(about)


def allowed_calls(unit):
    """The names that SystemCallFilter leaves: sets are opened, a ~ list takes away."""
    def names(group):
        if not group.startswith("@"):
            return {group}
        listed = run("systemd-analyze", "syscall-filter", "--no-pager", group).stdout
        out = set()
        for line in listed.splitlines()[1:]:
            word = line.strip()
            if word and not word.startswith("#"):
                out |= names(word)
        return out

    allowed = set()
    for value in setting(unit, "SystemCallFilter"):
        for group in value.lstrip("~").split():
            allowed = allowed - names(group) if value.startswith("~") else allowed | names(group)
    return allowed


def answers(path):
    """The service reads what a stranger sends and says no. Only then is a signal sent to it: one
    that comes before the loop's first wait is lost by ThreadSanitizer, which is just then taking
    memory for signals."""
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(60)
        stranger.connect(path)
        stranger.sendall(bytes(64))
        while stranger.recv(4096):
            pass


def check_start(unit, program, folder):
    """Starts as the unit does, in another place; ready, then a SIGTERM ends it well. Returns the
    system calls that it made and the unit would refuse, or None without strace."""
    (command,) = setting(unit, "ExecStart")
    command = command.replace("/var/cache/cachesvc", folder + "/cache")
    args = command.replace("/run/cachesvc", folder + "/run").split()[1:]
    os.mkdir(folder + "/cache", 0o700)
    ready, to = os.pipe()
    os.set_inheritable(to, True)
    trace = ["strace", "-f", "-qq", "-o", folder + "/calls"] if shutil.which("strace") else []
    environment = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": folder}
    if trace:
        environment["ASAN_OPTIONS"] = "detect_leaks=0"  # it can't while another process traces
    started = trace + [program] + args + ["--set", "tier.ssd.min_free=0", "--ram", "64MiB",
                                          "--ssd", "64MiB", "--ready-fd", str(to)]
    with subprocess.Popen(started, pass_fds=[to], env=environment,
                          start_new_session=True) as daemon:
        os.close(to)
        assert os.read(ready, 6) == b"ready\n", "the unit's command line does not start the program"
        answers(folder + "/run/cachesvc.sock")
        os.killpg(daemon.pid, signal.SIGTERM)
        assert daemon.wait() == 0, f"SIGTERM: exit code {daemon.returncode}"
    if not trace:
        return None
    with open(folder + "/calls") as file:
        made = set(re.findall(r"^\d+ +(\w+)\(", file.read(), flags=re.M))
    as_root = {"fchown"} if os.geteuid() == 0 else set()  # SQLite's, which ignores the answer
    return made - allowed_calls(unit) - as_root


def main():
    unit_path, program = sys.argv[1:]
    if not shutil.which("systemd-analyze"):
        print("skipped: systemd-analyze (package systemd) is not installed")
        return SKIPPED
    with open(unit_path) as file:
        unit = file.read()
    assert setting(unit, "MemoryMax"), "MemoryMax: the unit sets no limit of memory"
    level = check_exposure(unit_path)
    with tempfile.TemporaryDirectory() as folder:
        check_form(unit, program, folder)
        refused = check_start(unit, program, folder)
    if refused is None:
        print("the system call filter was not compared: strace is not installed")
    assert not refused, f"the unit refuses system calls of the program: {sorted(refused)}"
    print(f"exposure {level}, at most {MOST_EXPOSED}; the program starts and ends")
    return 0


if __name__ == "__main__":
    sys.exit(main())
