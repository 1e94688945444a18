"""The standing page: one dated page about the user, of facts in their own words and of the user's own lines."""
