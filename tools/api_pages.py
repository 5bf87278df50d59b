"""Pages of the site that are no files below docs/: a hook of mkdocs.

ARCHITECTURE.md and CONTRIBUTING.md are pages, too; links of the handbook to `../ARCHITECTURE.md` lead there. The API reference
has a page for each module, made from the docstrings.

The pages are made when the site is built and are no files here. (Most names come from the operations' table when flambeau is
imported, so a tool that reads the source without running it would not find them.)
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import public_names  # noqa: E402

ROOT = Path(__file__).parents[1]
FRONT = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md"}


def on_config(config: Any) -> Any:
    """The pages of the modules go to the end of the navigation, below their list of contents."""
    modules = [{spelled(name): f"api/{name}.md"} for name in public_names.MODULES]
    config.nav[-1]["Reference"][-1] = {"API": ["api/index.md", *modules]}
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File
    for name in public_names.MODULES:
        files.append(File.generated(config, f"api/{name}.md", content=page(name)))
    files.append(File.generated(config, "api/index.md", content=contents()))
    for source, target in FRONT.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    for source, target in FRONT.items():
        markdown = markdown.replace(f"](../{source}", f"]({target}")
    return markdown


def contents() -> str:
    rows = "".join(f"| [{spelled(name)}]({name}.md) | {text} |\n" for name, text in public_names.MODULES.items())
    return ("# API reference\n\nMade from the docstrings. Names, arguments and meanings are PyTorch's; what is missing is in "
            f"[coverage](../coverage.md).\n\n| module | about |\n| --- | --- |\n{rows}")


def spelled(name: str) -> str:
    return name if name in ("torch",) else f"torch.{name}"


def page(name: str) -> str:
    parts = [f"# {spelled(name)}\n\n{public_names.MODULES[name]}\n"]
    parts += [entry(key, value) for key, value in public_names.public(name).items()]
    return "\n".join(parts)


def entry(name: str, value: Any) -> str:
    kind = "class " if isinstance(value, type) else ""
    return f"## {name} {{ #{name} }}\n\n```python\n{kind}{name}{public_names.signature(value)}\n```\n\n{body(value)}\n"


def body(value: Any) -> str:
    """A docstring as Markdown: examples become code, other indented lines stay as they are, text is escaped."""
    doc = inspect.getdoc(value) if not isinstance(value, type) else inspect.cleandoc(value.__doc__ or "")
    parts = []
    for paragraph in re.split(r"\n\s*\n", doc or ""):
        if paragraph.lstrip().startswith(">>>"):
            parts.append(f"```pycon\n{inspect.cleandoc(paragraph)}\n```")
        elif paragraph.startswith(" "):
            parts.append(f"```text\n{inspect.cleandoc(paragraph)}\n```")
        else:
            parts.append(escaped(paragraph))
    return "\n\n".join(parts)


def escaped(text: str) -> str:
    """Text with no markup but `code`."""
    pieces = re.split(r"(`[^`\n]+`)", text)
    pieces[::2] = [re.sub(r"([\\*_<>\[\]#|~^&`!{}])", r"\\\1", piece) for piece in pieces[::2]]
    return "".join(pieces)
