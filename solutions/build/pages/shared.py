"""The race as a photograph, which other sites show beside a link: made where a browser is at hand, else it stays."""

import hashlib
import os
import shutil
import struct
import zlib
from pathlib import Path

from .gallery import RACE
from .gallery_page import SHARED, TITLE

SIZE = {"width": 1200, "height": 630}
"""In pixels, as other sites want it."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PAGE = """<!doctype html><meta charset="utf-8"><style>body{{margin:0;height:630px;display:flex;gap:32px;
align-items:center;padding:0 28px;box-sizing:border-box;
background:#eceef2;color:#1a1d23;font:30px/1.3 system-ui,sans-serif}}
svg{{height:590px;width:auto;flex:none}}b{{font-size:46px;line-height:1.1;display:block;margin-bottom:24px}}</style>
<div><b>{title}</b>How do many GPUs train one model together? Write it yourself.</div>{picture}"""


def photograph(root: Path) -> str:
    """Make the photograph if the picture has changed; what was done, in a sentence, or nothing."""
    place, drawn = root / "puzzles" / SHARED, root / "puzzles" / RACE
    if not drawn.exists() or mark(drawn.read_bytes()) == marked(place):
        return ""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        return f"puzzles/{SHARED} shows an older picture: make browser, then make build"
    with sync_playwright() as playwright:
        path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
        try:
            browser = playwright.chromium.launch(executable_path=path)
        except Error:
            return f"puzzles/{SHARED} shows an older picture: no browser runs here"
        page = browser.new_page(viewport=SIZE, reduced_motion="reduce")
        page.set_content(PAGE.format(title=TITLE, picture=drawn.read_text(encoding="utf-8")))
        png = page.screenshot()
        browser.close()
    place.write_bytes(png[:END] + mark(drawn.read_bytes()) + png[END:])
    return f"puzzles/{SHARED} is made anew"


END = 33
"""Where the head of a PNG ends."""


def mark(picture: bytes) -> bytes:
    """A chunk of a PNG that says of which picture it is."""
    data = b"tEXtSource\0" + hashlib.sha256(picture).hexdigest().encode()
    return struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))


def marked(place: Path) -> bytes:
    """That chunk of a file."""
    return place.read_bytes()[END : END + len(mark(b""))] if place.exists() else b""
