"""Build hook: records the commit in the package, where the installed version finds it without git."""

import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    _folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        package = Path(self.root) / "src" / "heliostat"
        commit = runpy.run_path(str(package / "version.py"))["read_commit"](package)
        if version == "editable" or commit is None or (package / "COMMIT").exists():
            return
        self._folder = Path(tempfile.mkdtemp())
        file = self._folder / "COMMIT"
        file.write_text(f"{commit}\n", encoding="utf-8")
        inside = "heliostat" if self.target_name == "wheel" else "src/heliostat"
        build_data["force_include"][str(file)] = f"{inside}/COMMIT"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder)
