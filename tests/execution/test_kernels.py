"""A kernel ends with its run: an idle one is asked to, a busy one is interrupted."""

import asyncio

import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest

from qwen3nb.execution.papermill_engine import GuardedKernels

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
    await client.wait_for_ready(timeout=60)
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
