"""Single flipped bytes, as bit rot leaves them."""

import random
from contextlib import contextmanager


def flips(folder, *, count, seed=0, leave_out=()):
    """Yield ``count`` files below ``folder`` with a position; each file is as likely."""
    files = [f for f in sorted(folder.rglob("*")) if f.is_file() and f.name not in leave_out]
    files = [file for file in files if file.stat().st_size]
    numbers = random.Random(seed)
    for _ in range(count):
        file = numbers.choice(files)
        yield file, numbers.randrange(file.stat().st_size), numbers.randrange(1, 256)


def refusal(action, *values):
    """Return the text of the ValueError that ``action`` raises; None if it does not."""
    try:
        action(*values)
    except ValueError as error:
        return str(error)
    return None


@contextmanager
def flipped(file, position, bits):
    """Change one byte of ``file`` for the block."""
    whole = file.read_bytes()
    file.write_bytes(whole[:position] + bytes([whole[position] ^ bits]) + whole[position + 1 :])
    try:
        yield
    finally:
        file.write_bytes(whole)
