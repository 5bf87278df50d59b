"""Draws the handbook's pictures anew: runs the pages and takes the .svg files that they write.

    PYTHONPATH=. python tools/doc_pictures.py

With Chromium on the machine, the explorer's page is photographed, too.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
SHOTS = {"autograd_step.html": ("autograd_explore.png", 9)}  # a page: its picture, and the step that it shows

sys.path.insert(0, str(ROOT / "tests"))
import chromium  # noqa: E402
import pages  # noqa: E402


def main() -> None:
    os.environ["PATH"] = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not Path(p, "dot").exists())
    for page in sorted((ROOT / "docs").glob("*.md")):
        if "viz." not in page.read_text(encoding="utf-8"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)  # flambeau's own layout, so that the pictures are the same on every machine (see above)
            pages.run(page, Path(folder))
            for picture in Path(folder).glob(f"{page.stem}_*.svg"):
                shutil.copy(picture, IMAGES)
                print(IMAGES / picture.name)
            for html, (name, step) in SHOTS.items():
                if Path(html).exists():
                    photograph(Path(html), IMAGES / name, step)
            os.chdir(ROOT)


def photograph(html: Path, picture: Path, step: int) -> None:
    if chromium.PROGRAM is None:
        print(f"{picture}: left as it is, for there is no Chromium")
        return
    with chromium.Browser(width=1100, height=720) as browser:
        browser.open(html)
        browser.key("Home")
        for _ in range(step):
            browser.key("ArrowRight")
        browser.screenshot(picture)
    print(picture)


if __name__ == "__main__":
    main()
