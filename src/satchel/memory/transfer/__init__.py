"""Export and import of memories: Satchel's own file format, and the formats of other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.memory.transfer.copying import pending, read_back
    from satchel.memory.transfer.files import SourceFile
    from satchel.memory.transfer.parts import UNDATED, ImportedMemory, LeftOut, fact, said, stable_id
    from satchel.memory.transfer.service import export_to, import_from

__all__ = [
    "UNDATED",
    "ImportedMemory",
    "LeftOut",
    "SourceFile",
    "export_to",
    "fact",
    "import_from",
    "pending",
    "read_back",
    "said",
    "stable_id",
]

# Most processes that open a store neither export nor import.
__getattr__ = on_demand(
    __name__,
    {
        "copying": ("pending", "read_back"),
        "files": ("SourceFile",),
        "parts": ("UNDATED", "ImportedMemory", "LeftOut", "fact", "said", "stable_id"),
        "service": ("export_to", "import_from"),
    },
)
