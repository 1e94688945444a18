"""JSON encoding that accepts any text."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse


def json_bytes(value: Any) -> bytes:
    """JSON in UTF-8. Lone surrogates are escaped, because UTF-8 can't encode them."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


class JsonAnswer(JSONResponse):
    """An answer in JSON."""

    def render(self, content: Any) -> bytes:
        """See `JSONResponse.render`."""
        return json_bytes(content)
