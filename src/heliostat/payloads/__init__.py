"""Programs that run inside jobs, with the Python 3 (3.7 or newer) of the node or the image.

A program is a module with a function `main`. It imports only the standard library and modules of this package.
"""
