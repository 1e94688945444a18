"""Export and import of memories: Satchel's own file format, and the formats of other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.memory.transfer.copying import pending as pending
    from satchel.memory.transfer.copying import read_back as read_back
    from satchel.memory.transfer.files import SourceFile as SourceFile
    from satchel.memory.transfer.importing import Intake as Intake
    from satchel.memory.transfer.own_format import write as write
    from satchel.memory.transfer.parts import UNDATED as UNDATED
    from satchel.memory.transfer.parts import ImportedMemory as ImportedMemory
    from satchel.memory.transfer.parts import LeftOut as LeftOut
    from satchel.memory.transfer.parts import fact as fact
    from satchel.memory.transfer.parts import said as said
    from satchel.memory.transfer.parts import stable_id as stable_id

# Most processes that open a store neither export nor import.
__getattr__ = on_demand(__name__)
