"""One module per training method; importing it registers the method."""
