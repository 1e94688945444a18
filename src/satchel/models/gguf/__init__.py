"""A GGUF model inside the process (the extra `local`)."""

from satchel.models.gguf.client import GGUFModel as GGUFModel
