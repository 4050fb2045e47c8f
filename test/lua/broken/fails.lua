-- Fails when it is loaded.
error("at the top")
