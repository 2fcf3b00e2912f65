"""Programs that run inside jobs, by whatever Python 3 (3.7 or newer) the node or the image has.

A program is a module with a function `main`. It imports the standard library and modules of this package only.
"""
