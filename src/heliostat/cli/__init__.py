"""The command line `helio`: one module per noun, loaded when a command needs it."""
