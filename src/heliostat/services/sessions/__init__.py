"""Sessions: a web server of one person in a job."""
