"""Installation and configuration of other software on nodes. Needs no running Heliostat server."""
