"""The language models of an open Satchel. Each is opened once, when it is first used."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from satchel.clock import Clock
from satchel.config import Settings
from satchel.events import Notice
from satchel.models import (
    AbilityStore,
    ChatModel,
    Choice,
    choose_model,
    extractor_of,
    open_model,
    small_model_of,
)


class OpenModels:
    """Opens models by name and closes them at the end.

    Attributes:
        given: The model object that the program passed to `Satchel.open`, or None. It is the default model, and does
            small work too unless the settings name a small model.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        given: ChatModel | None,
        notify: Callable[[Notice], None],
    ) -> None:
        """Open no model yet; `notify` is told about models that are set up and unavailable."""
        self.given = given
        self._settings = settings
        self._clock = clock
        self._notify = notify
        self._abilities = AbilityStore(settings.home / "abilities.json", clock=clock)
        self._open: dict[str, ChatModel] = {}
        self._left: list[ChatModel] = []
        self._choice: Choice | None = None
        self._choosing = anyio.Lock()

    async def choice(self) -> Choice:
        """The default model and the reason for it. The choice is made once, or the program made it.

        Raises:
            ConfigError, ModelError: See `choose_model`.
        """
        if self.given is not None:
            return Choice(
                name=f"{self.given.provider}:{self.given.model}", why="given by the program", tried=()
            )
        async with self._choosing:  # a turn and a background task may ask at the same time
            if self._choice is None:
                choice = await choose_model(self._settings)
                for tried in choice.failed:
                    text = (
                        f"{tried.name} is set up but unavailable: {tried.reason.rstrip('.')}. "
                        "Fix that, or choose another: satchel config set model PROVIDER:MODEL"
                    )
                    self._notify(Notice(part="model", text=text))
                self._choice = choice
            return self._choice

    @property
    def settings(self) -> Settings:
        """Those that models are opened by."""
        return self._settings

    def use(self, settings: Settings) -> None:
        """Open the models of other settings from now on. Those that are open stay open for whoever uses them."""
        self._settings = settings
        self._choice = None
        self._left += self._open.values()
        self._open = {}

    async def model(self, name: str | None = None) -> ChatModel:
        """A model by its name "provider:model"; None returns the default model.

        Raises:
            ConfigError, ModelError: There is no such model, or no default could be chosen.
        """
        if name is None:
            if self.given is not None:
                return self.given
            name = (await self.choice()).name
        if name not in self._open:
            self._open[name] = open_model(name, self._settings, abilities=self._abilities, clock=self._clock)
        return self._open[name]

    async def small(self) -> ChatModel:
        """The model for small work; the default model if there is no smaller one.

        Raises:
            ConfigError, ModelError: See `model`.
        """
        return await self._beside(self._settings.small_model, small_model_of)

    async def extractor(self) -> ChatModel:
        """The model that extracts facts; see `extractor_of`.

        Raises:
            ConfigError, ModelError: See `model`.
        """
        return await self._beside(self._settings.memory.extractor, extractor_of)

    async def _beside(self, wanted: str, usual: Callable[[str, Settings], str]) -> ChatModel:
        """A model that the settings name, else the usual one beside the default model."""
        model = await self.model()
        name = f"{model.provider}:{model.model}"
        wanted = wanted or ("" if self.given is not None else usual(name, self._settings))
        return model if wanted in ("", name) else await self.model(wanted)

    async def aclose(self) -> None:
        """Close the models that were opened by name; the program closes its own."""
        for model in (*self._open.values(), *self._left):
            await model.aclose()
