"""What this GPU can really do, beside the papers' figures. Parts ask whether it still does that, and how well OFU tells MFU."""
