"""What went wrong, told once, to whom it concerns: problems out of answers, what is open of them, where they are sent."""
