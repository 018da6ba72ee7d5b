"""`make doors`: each adapter inside its real framework, with rewards from a running service."""
