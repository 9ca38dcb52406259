"""One module per family of defences; importing it registers them."""
