"""Host and device efficiency trees of profiles: of one run, of two compared, of several beside one another."""
