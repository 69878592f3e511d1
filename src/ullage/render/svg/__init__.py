"""Pictures as SVG: one file a picture, one function each, drawn by our own hand.

A picture function takes the part of a report that it shows and returns SVG text. `width` is the width in pixels it is
laid out for (880 for a page, 360 for a phone; text keeps its size). `standalone=True` gives a file of its own, with its
colours inside; `standalone=False` leaves the colours to the page that holds it. The same input gives the same bytes.
"""
