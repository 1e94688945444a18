"""The memory proxy: passes requests of other agents on to their provider, adds memory, and captures what is said."""
