"""A kernel ends with its run: an idle one is asked to, a busy one is interrupted."""

import asyncio
import logging
import os
import socket

import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from helpers.notebooks import notebook_of
from papermill.engines import NotebookExecutionManager

from qwen3nb.execution import kernel_watch, papermill_engine
from qwen3nb.execution.kernel_watch import KernelWatch, StalledKernelError
from qwen3nb.execution.notebook import _with_second_try
from qwen3nb.execution.papermill_engine import GuardedKernels
from qwen3nb.utils.secrets import known_secrets

pytestmark = pytest.mark.integration


class ObservedKernels(GuardedKernels):
    """Counts interrupts."""

    interrupts = 0

    async def _async_interrupt_kernel(self):
        self.interrupts += 1
        await super()._async_interrupt_kernel()


async def kernel_that_ends(error):
    """Start a kernel, end it while ``error`` is handled, and return its manager."""
    kernels = ObservedKernels()
    await kernels.start_kernel()
    client = kernels.client()
    client.start_channels()
    await client.wait_for_ready(timeout=240)
    client.stop_channels()
    try:
        if error is not None:
            raise error
    except RuntimeError:
        await kernels.shutdown_kernel()
    else:
        await kernels.shutdown_kernel()
    assert not await kernels.is_alive()
    return kernels


@pytest.mark.parametrize(("error", "interrupts"), [(None, 0), (RuntimeError("a timeout"), 1)])
def test_only_a_run_that_failed_interrupts_its_kernel(error, interrupts):
    """An idle kernel would log the interrupt as an error, on a run that succeeded."""
    kernels = asyncio.run(kernel_that_ends(error))
    assert kernels.interrupts == interrupts
    assert not kernels.has_kernel


@pytest.mark.parametrize(
    ("given", "waited"), [({}, 300), ({"start_timeout": 60}, 300), ({"start_timeout": 90}, 90)]
)
def test_a_kernel_may_take_minutes_to_start(monkeypatch, given, waited):
    """papermill's default of 60 seconds is too short on a busy machine; another value counts."""
    settings = {}

    class Client:
        def __init__(self, notebook, **options):
            settings.update(options)

        def execute(self, env):
            return env

    monkeypatch.setattr(papermill_engine, "_Client", Client)
    papermill_engine.Engine.execute_managed_notebook(None, "python3", environment={}, **given)
    assert settings["startup_timeout"] == waited


def test_a_kernel_whose_port_was_taken_is_started_again(caplog):
    """The first one cannot bind its port, and dies; with a port of its own, the next one runs."""
    managers = []
    with socket.create_server(("127.0.0.1", 0)) as other_program:
        taken_port = other_program.getsockname()[1]

        class Kernels(GuardedKernels):
            def write_connection_file(self, **options):
                managers.append(self)
                if len(managers) == 1:
                    self.control_port = taken_port
                super().write_connection_file(**options)

        node = notebook_of("print(1 + 1)", parameters="x: int = 1  # a number")
        client = papermill_engine._Client(
            NotebookExecutionManager(node),
            kernel_name="python3",
            startup_timeout=240,
            log=logging.getLogger("quiet"),
            secrets=known_secrets(),
            watch=KernelWatch(),
            kernel_manager_class=Kernels,
        )
        with client.setup_kernel(env=dict(os.environ)):
            assert client.kc is not None
    assert len(managers) == 2
    assert "another one is started" in caplog.text


def test_a_kernel_that_does_nothing_is_ended():
    """As if the request of a cell, or its reply, had been lost."""
    node = notebook_of("import time; time.sleep(100)", parameters="x: int = 1  # a number")
    client = papermill_engine._Client(
        NotebookExecutionManager(node),
        kernel_name="python3",
        startup_timeout=240,
        log=logging.getLogger("quiet"),
        secrets=known_secrets(),
        watch=KernelWatch(idle_seconds=0.5),
        kernel_manager_class=GuardedKernels,
    )
    client.papermill_execute_cells = lambda: client.execute_cell(node.cells[-1], 2)
    with pytest.raises(StalledKernelError, match="did nothing for 0 minutes"):
        client.execute(env=dict(os.environ))


class Clock:
    """A clock and the processor time of a kernel, both set by hand."""

    def __init__(self):
        self.now = 100.0
        self.work = 3.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(kernel_watch, "processor_seconds", lambda pid: clock.work)
    return clock


def test_work_and_messages_are_signs_of_life(clock):
    watch = KernelWatch(idle_seconds=60, clock=clock)
    for minute in range(1, 6):  # a cell that computes
        clock.now += 50
        clock.work += 1
        assert not watch.has_stalled(1), minute
    for minute in range(1, 6):  # a cell that prints
        clock.now += 50
        watch.note_message()
        assert not watch.has_stalled(1), minute
    clock.now += 50
    clock.work += 0.1  # as of an idle kernel
    assert not watch.has_stalled(1)
    clock.now += 10
    assert watch.has_stalled(1)


def test_the_end_of_a_child_is_a_sign_of_life(clock):
    """Its processor time is gone with it."""
    watch = KernelWatch(idle_seconds=60, clock=clock)
    clock.now += 10
    assert not watch.has_stalled(1)
    clock.now += 55
    clock.work = 2.0
    assert not watch.has_stalled(1)


def test_a_stalled_notebook_is_run_once_more(capsys):
    tries = []

    def stall_at_first():
        tries.append(1)
        if len(tries) == 1:
            raise StalledKernelError("the kernel did nothing")

    def stall():
        raise StalledKernelError("the kernel did nothing")

    _with_second_try(stall_at_first)
    assert len(tries) == 2
    assert "Another one starts" in capsys.readouterr().err
    with pytest.raises(StalledKernelError):
        _with_second_try(stall)
