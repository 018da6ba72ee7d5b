"""People who label pairs: blind pairs on random sides, their order, and answers with undo."""
