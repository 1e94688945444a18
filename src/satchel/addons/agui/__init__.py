"""The protocol of AG-UI front ends."""
