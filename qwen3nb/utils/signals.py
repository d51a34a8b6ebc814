"""Signals that a process inherits from the program that started it."""

import ctypes
import signal
import threading


def heed_children() -> None:
    """Let this process learn how its children end, even if it was started with SIGCHLD ignored.

    Where that signal is ignored, the system drops the exit status of every child, and Python takes
    each for a success. The setting is one of the whole process, so it stays once it is made. To be
    called before a child is started whose status counts; from any thread.
    """
    if not hasattr(signal, "SIGCHLD") or signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN:
        return
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    else:  # Python sets signals in its main thread only
        system = ctypes.CDLL(None)
        system.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        system.signal.restype = ctypes.c_void_p
        system.signal(signal.SIGCHLD, None)  # SIG_DFL
