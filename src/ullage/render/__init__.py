"""A report as text, JSON, HTML, SVG or Parquet: one file a form. Nothing here computes."""
