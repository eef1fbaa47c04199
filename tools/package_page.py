"""Makes the text of a package's page for scikit-build-core: README.md, with links that work there.

A link between files of the repository doesn't work on a package's page. It becomes a link to the repository if
``[project.urls]`` of pyproject.toml names it (``Repository``), and else plain text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:|#)([^)\s]+)\)")


def page(text: str, repository: str | None) -> str:
    def absolute(link: re.Match[str]) -> str:
        return f"[{link[1]}]({repository.rstrip('/')}/blob/main/{link[2]})" if repository else link[1]

    return LINK.sub(absolute, text)


def dynamic_metadata(field: str, settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, str]:
    assert field == "readme", field
    urls = project["urls"] if "urls" in project else {}  # noqa: SIM401 (its get() raises)
    return {"content-type": "text/markdown", "text": page((ROOT / "README.md").read_text(), urls.get("Repository"))}
