"""Makes pictures smaller. It runs in the sandbox and imports nothing of Satchel, because its input is hostile.

`run` returns JSON, for each picture: `jpeg`, the bytes in base64, or `error`, a sentence.
"""

from __future__ import annotations

import base64
import io
import json
from contextlib import suppress
from typing import Any

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "AVIF", "HEIF")
_SIDES = (2000, 1400, 1000)
"""Pixels of the longer side: that of the page's own, and less for a picture that is still too large then."""


def run(args: dict[str, Any]) -> str:
    """Shrink the files `paths` to at most `most` bytes each."""
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener(thumbnails=False)
    return json.dumps([_shrunk(path, args["most"]) for path in args["paths"]])


def _shrunk(path: str, most: int) -> dict[str, str]:
    from PIL import Image, ImageOps

    try:
        with Image.open(path, formats=FORMATS) as opened:
            opened.draft("RGB", (_SIDES[0], _SIDES[0]))  # a JPEG is read at the size that is needed
            picture = ImageOps.exif_transpose(opened)
            if picture.mode.startswith("I"):  # grey of 16 bits, as scanners write it
                picture = picture.convert("I").point(lambda value: value * (1 / 256)).convert("L")
            picture = picture.convert("RGBA")
        plain = Image.new("RGB", picture.size, "white")
        plain.paste(picture, mask=picture.getchannel("A"))
        for side in _SIDES:
            plain.thumbnail((side, side))
            out = io.BytesIO()
            plain.save(out, "JPEG", quality=85, optimize=True)
            if out.tell() <= most:
                return {"jpeg": base64.b64encode(out.getvalue()).decode("ascii")}
    except MemoryError:
        return {"error": "It takes more memory than a picture may use."}
    # A boundary: a decoder may raise anything for a broken or hostile file.
    except Exception as error:  # noqa: BLE001
        return {"error": f"It is damaged, or has too many pixels ({type(error).__name__})."}
    return {"error": "It stays too large."}
