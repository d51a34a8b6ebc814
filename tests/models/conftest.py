"""What tests of models behind servers share."""

import pytest

from qwen3nb.models.kinds import api


@pytest.fixture
def waits(monkeypatch):
    """Seconds that were waited, which pass at once; no key is set."""
    seconds = []
    monkeypatch.setattr(api.time, "sleep", seconds.append)
    for name in ("QWEN3NB_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return seconds
