"""What a machine or container offers, one aspect per file: each check takes a `Plan` and gives findings."""
