"""Hook of mkdocs: pages of the site that are made from files outside docs/, and Mermaid's script.

The start page is README.md; examples and mesh files become a page a folder; the reference of
commands is typer's. Links between them, which hold on the file system, are changed to the pages.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import posixpath
import re
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

TOP = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Files that become pages, by their path in the repository."""
FOLDERS = (
    "deploy/prometheus",
    *sorted(f"examples/{one.name}" for one in (TOP / "examples").iterdir()),
    "topology_configs",
)
"""Folders of which each becomes one page."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".csv": "text"}
LEFT_OUT = ".json"
"""Suffix of the schemas, which the page of the mesh file tells better."""
MERMAID = "11.12.2"
MERMAID_SHA512 = (
    "n34QPDPEKmaeCG4WDMGy0OT6PSyxKCfy2pJgShP+Qow2KLrvWjclwbc3yXfSIf4BanqWEhQEpngWwNp/XhZt6w=="
)
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages and the script to the site's files."""
    for source, page in PAGES.items():
        _add(files, config, page, _linked((TOP / source).read_text(encoding="utf-8"), source, page))
    for folder in FOLDERS:
        _add(files, config, f"{folder}.md", _folder_page(folder))
    _add(files, config, "commands.md", _commands())
    script = File.generated(config, "mermaid.min.js", abs_src_path=str(_mermaid()))
    files.append(script)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change the links of a page of docs/ that lead out of docs/."""
    path = page.file.src_uri
    return markdown if page.file.generated_by else _linked(markdown, f"docs/{path}", path)


def _add(files: Files, config: Any, page: str, text: str) -> None:
    files.append(File.generated(config, page, content=text))


def _linked(text: str, source: str, page: str) -> str:
    """Text of a file of the repository, with its links as those of a page of the site."""

    def link(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        folder = next((one for one in FOLDERS if f"{path}/".startswith(f"{one}/")), None)
        target = f"{folder}.md" if folder else PAGES.get(path, path.removeprefix("docs/"))
        relative = posixpath.relpath(target, posixpath.dirname(page) or ".")
        return f"]({relative}{match[2] or ''})"

    return LINK.sub(link, text)


def _folder_page(folder: str) -> str:
    """README of a folder, and each of its other files as code."""
    readme = TOP / folder / "README.md"
    lines = [f"# {folder.rpartition('/')[2]}"]
    if readme.exists():
        text = readme.read_text(encoding="utf-8")
        lines = [_linked(text, f"{folder}/README.md", f"{folder}.md")]
    for file in sorted((TOP / folder).iterdir()):
        if file.is_file() and file != readme and file.suffix != LEFT_OUT:
            language = LANGUAGES.get(file.suffix, "ini")
            lines += ["", f"## {file.name}", "", f"````{language}"]
            lines += [file.read_text(encoding="utf-8").rstrip(), "````"]
    return "\n".join(lines) + "\n"


def _commands() -> str:
    """Reference of the command line, as typer writes it."""
    words = ("-m", "typer", "isthmus.cli", "utils", "docs", "--name", "isthmus")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        (sys.executable, *words, "--title", "Commands"),
        cwd=TOP,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PluginError(f"typer made no reference of the commands: {done.stderr}")
    return done.stdout


def _mermaid() -> Path:
    """Mermaid's script, fetched once and held to its hash; drawings then need no network."""
    script = TOP / ".tools" / f"mermaid-{MERMAID}.min.js"
    if script.exists():
        return script
    address = f"https://registry.npmjs.org/mermaid/-/mermaid-{MERMAID}.tgz"
    try:
        with urllib.request.urlopen(address, timeout=60) as response:
            archive: bytes = response.read()
    except OSError as error:
        raise PluginError(f"{address}: {error}") from error
    if base64.b64encode(hashlib.sha512(archive).digest()).decode() != MERMAID_SHA512:
        raise PluginError(f"{address} is not what it was: its SHA-512 is another")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = tar.extractfile("package/dist/mermaid.min.js")
        assert member is not None
        partial = script.with_suffix(".part")
        partial.write_bytes(member.read())
    partial.replace(script)
    return script
