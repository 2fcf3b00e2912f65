"""The way to servers inside jobs on machines that are not this one: a program beside the job passes bytes on."""
