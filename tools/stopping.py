"""A program that is stopped (SIGTERM, Ctrl-C) ends what it has started, then itself, in order.

The children are looked for when the signal comes: one that a note was yet to be made of, because
the signal fell into its start, ends too. Leaders of a process group take it with them.
"""
import contextlib
import os
import pathlib
import signal
import sys


def children():
    """Process ids of this process's children."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            # "pid (name) state parent …"; a name may have any character
            if int(path.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found


def end_children():
    for pid in children():
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)


def stop_with_children(name):
    """From now on, a signal to stop ends the children and raises SystemExit: clean-up follows."""
    def stop(*_):
        end_children()
        sys.exit(f"{name}: stopped")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
