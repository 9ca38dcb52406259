"""One module per source of networks; importing it registers the source."""
