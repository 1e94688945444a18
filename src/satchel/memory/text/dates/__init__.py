"""What a spoken date means: relative dates resolved against the day they were said on, by fixed conventions.

The conventions are those of `docs/concepts/dates.md`. What can't be known (two readings, or none) is found and left
unknown; nothing is guessed.

    languages/*.toml  the words, the phrases and the signs of a tense in English, German, Spanish, French and Chinese
    grammar.py        reads these files, and finds the phrases in a text
    spans.py          days, and what comes round every week, month or year
    meanings.py       what each phrase means on the day it was said
    tenses.py         whether a clause speaks of the past or the future
    resolving.py      puts them together
"""

from satchel.memory.text.dates.resolving import (
    ResolvedDate,
    days_meant,
    end_of_length,
    ends_of_lengths,
    named_days,
    resolve_dates,
)

__all__ = ["ResolvedDate", "days_meant", "end_of_length", "ends_of_lengths", "named_days", "resolve_dates"]
