"""The progress bar of an encoding: texts per second and remaining time.

The longest texts are encoded first, so texts per second rise over time. The remaining time
is therefore estimated from characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qwen3nb.utils.progress import tqdm

_DELAY = 2.0  # seconds until the bar appears
_FORMAT = (
    "{desc}: {percentage:3.0f}%|{bar}| {texts:,}/{of:,} texts "
    "[{elapsed}<{remaining}, {speed:,.1f} texts/s]"
)


class EncodingProgress(tqdm):
    """A bar that appears after two seconds, unless ``show`` is off.

    Attributes:
        texts: number of texts done.
    """

    def __init__(self, label: str, sizes: Sequence[int], *, show: bool, **options: Any) -> None:
        """Start a bar.

        Args:
            label: the encoder's label.
            sizes: characters of each text, in the order of encoding.
            show: whether to show the bar.
            options: options of tqdm.
        """
        self._sizes = [size + 1 for size in sizes]  # an empty text is work too
        self.texts = 0
        super().__init__(
            total=sum(self._sizes),
            desc=f"{label}: encoding",
            bar_format=_FORMAT,
            leave=False,
            disable=not show,
            **{"delay": _DELAY, **options},
        )

    def advance(self, texts: int) -> None:
        """Count the next ``texts`` texts as done."""
        done = self._sizes[self.texts : self.texts + texts]
        self.texts += len(done)
        self.update(sum(done))

    @property
    def format_dict(self) -> dict[str, Any]:
        """The fields that the format may use: tqdm's and ours."""
        fields = dict(super().format_dict)
        speed = self.texts / fields["elapsed"] if fields["elapsed"] else 0.0
        return {**fields, "texts": self.texts, "of": len(self._sizes), "speed": speed}
