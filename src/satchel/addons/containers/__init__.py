"""Docker and Podman as sandboxes."""
