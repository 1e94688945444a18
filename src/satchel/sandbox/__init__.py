"""Running what Satchel did not write: processes in their own group, stopped as a whole."""
