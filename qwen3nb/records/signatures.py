"""Sign files, and verify signatures, by the keys of SSH: ``ssh-keygen -Y``.

A signature is a file beside the signed one, ``<file>.sig``. It states a namespace, so that it can't
be taken for the signature of something else.
"""

import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from qwen3nb.utils.children import keep_exit_statuses

NAMESPACE = "qwen3nb-release"
_PROGRAM = "ssh-keygen"
_SIGNER = "signer"  # stands for whoever has the key
_PUBLIC_KEY = re.compile(r"(?:ssh|ecdsa|sk-ssh|sk-ecdsa)-\S+ [A-Za-z0-9+/=]+(?: .*)?")
_SECONDS = 120.0  # a key on a device is touched


class SignatureError(ValueError):
    """A file cannot be signed, or a signature cannot be verified; says what to do."""


def sign_file(file: Path, *, key: Path) -> Path:
    """Sign a file with a private key, or with the public half of one in an agent.

    Returns:
        The signature, a file beside it.

    Raises:
        SignatureError: no program, no such key, or a wrong passphrase.
    """
    if not key.is_file():
        raise SignatureError(f"{key}: no such key; `ssh-keygen -t ed25519 -f {key}` makes one")
    # Asks for the passphrase on the terminal, so its messages go there.
    arguments = ["-Y", "sign", "-q", "-f", str(key.absolute()), "-n", NAMESPACE, str(file)]
    status, message = _run(arguments)
    signature = file.with_name(f"{file.name}.sig")
    if status or not signature.is_file():
        raise SignatureError(f"{key}: `ssh-keygen -Y sign` did not sign with it: {message}")
    return signature


def signature_problem(file: Path, *, signers: Path) -> str:
    """Return why a file has no valid signature of one of the signers; empty if it has one.

    Args:
        file: the signed file; its signature is ``<file>.sig``.
        signers: a public key, or a file of allowed signers as ``ssh-keygen`` reads it, whose
            namespaces, if stated, have to include ``qwen3nb-release``.

    Raises:
        SignatureError: no program, or no such file of signers.
    """
    signature = file.with_name(f"{file.name}.sig")
    if not file.is_file() or not signature.is_file():
        return "it is not signed; `qwen3nb freeze NAME --sign KEY` signs"
    with TemporaryDirectory() as folder:
        allowed = Path(folder) / "signers"
        allowed.write_text(_allowed_signers(signers), encoding="utf-8")
        found = ["-Y", "find-principals", "-f", str(allowed), "-s", str(signature)]
        status, principals = _run(found)
        if status or not principals:
            return f"it is not signed by a key in {signers}"
        options = ["-Y", "verify", "-f", str(allowed), "-n", NAMESPACE, "-s", str(signature)]
        status, message = _run([*options, "-I", principals.splitlines()[0]], read=file)
    if status:
        return f"its signature is not of this content: {'; '.join(message.splitlines())}"
    return ""


def _allowed_signers(file: Path) -> str:
    """Return the allowed signers in a file; a public key alone is one."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise SignatureError(
            f"{file}: expected a public key or allowed signers ({error})"
        ) from None
    lines = []
    for line in text.splitlines():
        is_key_alone = _PUBLIC_KEY.fullmatch(line.strip())
        if is_key_alone:
            lines.append(f"{_SIGNER} {line.strip()}\n")
        else:
            lines.append(f"{line}\n")
    return "".join(lines)


def _run(arguments: list[str], *, read: Path | None = None) -> tuple[int, str]:
    """Run ``ssh-keygen``; return its exit status, and what it prints."""
    program = shutil.which(_PROGRAM)
    if program is None:
        raise SignatureError(f"{_PROGRAM} is not installed; it comes with OpenSSH (openssh-client)")
    keep_exit_statuses()
    content = read.read_bytes() if read else b""
    try:
        process = subprocess.run(
            [program, *arguments], input=content, capture_output=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise SignatureError(f"{_PROGRAM} was not done after {_SECONDS:.0f} seconds") from None
    output = process.stdout
    if process.returncode and process.stderr:
        output = process.stderr
    return process.returncode, output.decode(errors="replace").strip()
