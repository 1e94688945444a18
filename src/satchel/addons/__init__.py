"""Parts of Satchel that its rooms don't know: found by entry points, as plugins are, and always enabled."""
