"""Where jobs run: the engine contract, its factory, and what all engines share."""
