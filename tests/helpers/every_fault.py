"""Every fault at every file operation of every scenario: what tests try a sample of.

    .ci/faults                     all, in about an hour; `make nightly` runs it
    .ci/faults JUDGING clock       one

Prints a line for each scenario and fault, and ends with 1 if anything was lost.
"""

from __future__ import annotations

import errno
import sys
import time

from helpers.fault_injection import fault_server

SCENARIOS = {
    "helpers.record_scenarios": "SWEEP JUDGING BOOK EVALUATION RECORD RERANKING DOMAIN RELEASE",
    "helpers.folder_scenarios": "ENCODE SHARDS AVERAGE EXTRACT",
}
FAULTS = {
    "kill": "kill",
    "no-space": errno.ENOSPC,
    "read-only": errno.EROFS,
    "clock": "clock",
    "slow": "slow",
}


def main(names, faults):
    """Try these scenarios and faults; of both, all if none is named."""
    broken = 0
    for module, scenarios in SCENARIOS.items():
        with fault_server(module) as run:
            for name in scenarios.split():
                for fault, disturbance in FAULTS.items():
                    is_chosen = name in (names or [name]) and fault in (faults or [fault])
                    if not is_chosen:
                        continue
                    started = time.monotonic()
                    report = run(name, disturbance, most=0)
                    seconds = time.monotonic() - started
                    print(f"{name:11} {fault:9} {report.tried:5} tried,", end=" ")
                    print(f"{len(report.broken)} lost something, {seconds:.0f} s", flush=True)
                    for problem in report.broken:
                        print(f"  {problem}", flush=True)
                    broken += len(report.broken)
    return min(broken, 1)


if __name__ == "__main__":
    given = set(sys.argv[1:])
    sys.exit(main(given - FAULTS.keys(), given & FAULTS.keys()))
