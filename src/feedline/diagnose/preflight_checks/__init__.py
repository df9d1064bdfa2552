"""What a machine or container offers, one aspect a file: each check takes a `Plan` and gives findings."""
