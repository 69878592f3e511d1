"""One file a question: the answer as data, with what is missing. Nothing here knows on what it will be shown."""
