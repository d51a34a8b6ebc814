"""Upload an export to the hub, after scanning it for secrets.

The scan runs before the upload, and stops it if it finds a key, a token or a pickle. Messages name
the file, never its content.
"""

import json
from fnmatch import fnmatch
from pathlib import Path

from qwen3nb.checkpoints.folder import open_checkpoint
from qwen3nb.checkpoints.model_card import CARD, PENDING
from qwen3nb.checkpoints.provenance import PROVENANCE, published, read_provenance
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.hub import hub_error, hub_session
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.utils.secrets import Secrets, known_secrets

_SECRET_NAMES = """
.env* *.env *.pem *.key *.p12 *.pfx *.kdbx id_rsa* id_ed25519* id_ecdsa* .netrc _netrc
.git-credentials .pypirc .npmrc *credentials* *secret* token stored_tokens
""".split()  # noqa: SIM905 - a list of words reads better as lines
_PICKLES = ("*.pt", "*.pth", "*.pkl", "*.pickle", "*.bin", "*.ckpt", "*.joblib")
_TEXT_SUFFIXES = (
    ".json",
    ".md",
    ".txt",
    ".py",
    ".jinja",
    ".toml",
    ".yaml",
    ".yml",
    ".cfg",
    ".ini",
    "",
)


def plan_push(folder: Path | str) -> dict[str, int]:
    """Return the files of an export that would be uploaded: size in bytes by path in the folder.

    Raises:
        CheckpointError: the folder is not an export, or contains something that must not be
            uploaded: a card without results, a secret (by name or by content), a pickle or a link.
    """
    folder = Path(folder)
    opened = open_checkpoint(folder)
    if read_provenance(opened) is None:
        raise CheckpointError(
            f"{folder}: no qwen3nb.json, so this is not an export; run `qwen3nb extract` first"
        )
    _check_as_verified(folder)
    _check_card(folder)
    secrets = known_secrets()
    sizes: dict[str, int] = {}
    problems: list[str] = []
    for file in sorted(folder.rglob("*")):
        if file.is_dir() and not file.is_symlink():  # a link is refused below
            continue
        name = file.relative_to(folder).as_posix()
        reason = _refusal(file, secrets)
        if reason:
            problems.append(f"\n  {name}: {reason}")
        else:
            sizes[name] = file.stat().st_size
    if problems:
        raise CheckpointError(
            f"{folder}: nothing was uploaded; remove these files{''.join(problems)}"
        )
    return sizes


def _check_as_verified(folder: Path) -> None:
    """Refuse an export that changed since it was verified, as its fingerprint does."""
    fingerprint(find_source(str(folder)))


def _check_card(folder: Path) -> None:
    """Refuse a card without results; the export itself wrote it."""
    card = folder / CARD
    if card.is_file() and PENDING in card.read_text(encoding="utf-8", errors="replace"):
        raise CheckpointError(
            f"{card}: the card has no results yet; run `qwen3nb eval --model {folder}`, then "
            f"`qwen3nb card {folder}`"
        )


def _refusal(file: Path, secrets: Secrets) -> str:
    """Return why a file must not be uploaded; empty if it may."""
    name = file.name.lower()
    if file.is_symlink() or not file.is_file():
        return "a link or a special file; replace it with a copy of the file"
    if any(fnmatch(name, pattern) for pattern in _SECRET_NAMES):
        return "its name suggests a secret"
    if any(fnmatch(name, pattern) for pattern in _PICKLES):
        return "a pickle, which can run code when it is loaded"
    if secrets.kinds(str(file)):
        return "its name holds a secret"
    if file.suffix.lower() not in _TEXT_SUFFIXES:
        secrets = secrets.values  # in weights, any form of a secret may occur by chance
    kinds = secrets.kinds_in_file(file)
    if not kinds:
        return ""
    return f"contains {', '.join(kinds)}"


def push(folder: Path | str, repository: str, *, private: bool = False) -> str:
    """Upload an export to the hub and return the URL of the commit.

    The uploaded provenance contains the checkpoint's name, not its path on this machine. The
    repository, ``organisation/name``, is created if it does not exist, perhaps as a private one.

    Raises:
        CheckpointError: see `plan_push`.
        ValueError: the hub refuses the upload, or the name of the repository.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import LocalTokenNotFoundError

    folder = Path(folder)
    provenance = read_provenance(folder) or {}
    label = provenance.get("label", folder.name)
    source_digest = provenance.get("source", {}).get("digest", "")
    additions: list[CommitOperationAdd] = []
    for name in plan_push(folder):
        content: Path | bytes = folder / name
        if name == PROVENANCE:  # without the path on this machine
            text = json.dumps(published(provenance), indent=2) + "\n"
            content = text.encode()
        additions.append(CommitOperationAdd(name, content))
    try:
        with hub_session():
            api = HfApi()
            api.create_repo(repository, private=private, exist_ok=True)
            message = f"{label} from {source_digest[:12]}"
            commit = api.create_commit(repository, additions, commit_message=message)
    except LocalTokenNotFoundError:
        raise ValueError("not logged in to the hub; run `hf auth login` first") from None
    except Exception as error:  # noqa: BLE001 - transport errors pass through the hub's client
        raise ValueError(
            f"the upload failed for {repository}: {hub_error(error)}. Check with "
            "`hf auth whoami` that the account may write to it"
        ) from None
    return str(commit.commit_url)
