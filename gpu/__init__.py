"""Every check of Ullage that needs a GPU. `make gpu` runs them; docs/gpu-checks.md says what each answers."""
