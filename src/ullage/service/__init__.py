"""The service: the questions over HTTP, as pages and as JSON, of a store that others fill or that the service fills itself."""
