"""Keep the files of a checkpoint while it is evaluated: a trainer may delete its folder.

Files are linked, which takes neither time nor disk: a deleted file stays as long as one of its
links. On file systems without links they are copied. Only what a model needs is kept.
"""

import shutil
from fnmatch import fnmatch
from pathlib import Path

from qwen3nb.utils.atomic_files import link_or_copy, sha256_file, sha256_json

# Of the training alone; an optimizer's state is twice as large as the weights.
_NOT_OF_MODEL = (
    "optimizer*",
    "scheduler*",
    "rng_state*",
    "scaler*",
    "trainer_state.json",
    "training_args.bin",
    "global_step*",
)


def keep_files(checkpoint: Path, copy: Path) -> None:
    """Link the files of a checkpoint's model into a folder, as far as they are not there yet.

    Nothing is done for a checkpoint that is gone.

    Raises:
        OSError: a file can be neither linked nor copied.
    """
    for file in sorted(checkpoint.rglob("*")):
        path = file.relative_to(checkpoint)
        is_of_model = not any(fnmatch(path.parts[0], pattern) for pattern in _NOT_OF_MODEL)
        if is_of_model and file.is_file() and not (copy / path).exists():
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            if file.is_symlink():  # a link to a link would be lost with the first one
                shutil.copyfile(file, copy / path)
            else:
                link_or_copy(file, copy / path)


def remove_copy(copy: Path) -> None:
    """Remove the copy of a checkpoint, as far as possible."""
    shutil.rmtree(copy, ignore_errors=True)


def digest_of_files(copy: Path) -> str:
    """Return a digest of the paths and contents of all files in a folder."""
    digests = {}
    for file in sorted(copy.rglob("*")):
        if file.is_file():
            digests[file.relative_to(copy).as_posix()] = sha256_file(file)
    return sha256_json(digests)
