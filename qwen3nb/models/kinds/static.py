"""Static models: the mean of a vector per token, of model2vec or wordllama."""

from __future__ import annotations

from typing import Any

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.weights import Weights
from qwen3nb.models.gate.bounds import check_settings
from qwen3nb.models.gate.static_tables import NUMBERS, static_files, token_table
from qwen3nb.models.kinds.source import FolderKind, Settings, Source
from qwen3nb.models.types import ModelFolderError


class _Static(FolderKind):
    """A table with a vector per token, whose mean is a text's vector."""

    name = "static"
    library = "torch"
    cosine = True

    def matches(self, folder: ModelFolder) -> bool:
        names = {each.name for each in folder.modules}
        return static_files(folder) is not None and names <= {"StaticEmbedding", "Normalize"}

    def check(self, source: Source) -> None:
        folder = source.own_folder
        check_settings(folder)
        for name in (files := self._files(folder)):
            if not folder.has(name):
                raise ModelFolderError(f"{folder}: no {name}, which a static model consists of")
        token_table(folder.weights_in(files[0]), types=tuple(NUMBERS))

    def files(self, folder: ModelFolder) -> tuple[str, ...]:
        return self._files(folder)[1:]

    def weights(self, folder: ModelFolder) -> Weights:
        return folder.weights_in(self._files(folder)[0])

    def load(self, source: Source, settings: Settings) -> Any:
        from qwen3nb.models.encoders.static import StaticEncoder

        return StaticEncoder(source, settings)

    @staticmethod
    def _files(folder: ModelFolder) -> tuple[str, str]:
        if (files := static_files(folder)) is None:
            raise ModelFolderError(f"{folder}: not a static model; expected the files of model2vec")
        return files


STATIC = _Static()
