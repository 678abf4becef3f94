"""Ctrl-C at a safe place: held back while the weights move, then raised."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Holds a Ctrl-C back until the block is over.

    Outside the main thread, where none arrives, it does nothing; nor where the process ignores it (nohup, a job in the
    background), which must stay so.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    pending = False

    def hold(signum: int, frame: FrameType | None) -> None:
        nonlocal pending
        pending = True

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pending:
        raise KeyboardInterrupt
